#include "runtime/config/image_normalisation.h"

#include "runtime/base/error.h"

namespace lockstep::config {
namespace {

// One value per channel: as configured, or the default.
std::vector<float> per_channel(const char* field,
                               const std::vector<float>& given,
                               const std::vector<float>& of_imagenet,
                               size_t channels) {
  if (given.size() == channels) return given;
  if (given.size() == 1) return std::vector<float>(channels, given[0]);
  if (!given.empty())
    throw ConfigError("{}: {} values for images of {} channels; allowed: one, or one per channel",
                      field,
                      given.size(),
                      channels);
  return channels == of_imagenet.size() ? of_imagenet : std::vector<float>(channels, 0.5f);
}

}  // namespace

ImageNormalisation normalisation_of(const DataConfig& data, size_t channels) {
  if (const auto* idx = std::get_if<IdxConfig>(&data.source))
    return {std::vector<float>(channels, idx->mean), std::vector<float>(channels, idx->std)};
  return {per_channel("data.image.mean", data.image.mean, {0.485f, 0.456f, 0.406f}, channels),
          per_channel("data.image.std", data.image.std, {0.229f, 0.224f, 0.225f}, channels)};
}

}  // namespace lockstep::config

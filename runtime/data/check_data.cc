#include "runtime/data/check_data.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/ordered.h"

namespace lockstep {
namespace {

void check_range(const char* field, const std::vector<float>& range) {
  if (range.size() == 2 && range[0] <= range[1]) return;
  refuse_value(field,
               fmt::format("[{}]", fmt::join(range, ", ")),
               "two numbers, of which the first is not above the second");
}

void check_image(const ImageConfig& image) {
  if (image.resize != 0 && image.resize < image.size)
    refuse_value("data.image.resize",
                 image.resize,
                 fmt::format("0, or at least data.image.size, which is {}", image.size));
}

// Of models that make images from nothing, whose scale must be known.
void check_scale(const DataConfig& data, const ModelTraits& model) {
  for (const auto& [field, given] : {std::pair("data.image.mean", &data.image.mean),
                                     std::pair("data.image.std", &data.image.std)}) {
    if (!given->empty())
      refuse_value(field,
                   fmt::format("[{}]", fmt::join(*given, ", ")),
                   fmt::format("none with model.{}, whose pixels are in [-1, 1]", model.section));
  }
}

void check_augment(const AugmentConfig& augment) {
  if (const auto& crop = augment.random_resized_crop) {
    check_range("data.augment.random_resized_crop.scale", crop->scale);
    check_range("data.augment.random_resized_crop.ratio", crop->ratio);
  }
}

}  // namespace

void check_data(const RunConfig& config) {
  const std::unique_ptr<const DataFormat> format = format_of(config.data);
  format->check();
  check_image(config.data.image);
  check_augment(config.data.augment);
  if (config.eval.every > 0 && !format->has_eval())
    refuse_value("eval.every",
                 config.eval.every,
                 "0, or above it only with evaluation data in the data section, which has none");
}

void check_data_for_model(const DataConfig& data, const ModelTraits& model) {
  const std::unique_ptr<const DataFormat> format = format_of(data);
  const std::string section = "data." + name_of(data.source);
  if (!format->gives(model.input))
    refuse_value(
        "data",
        section,
        fmt::format("{} with {}",
                    formats_for(model),
                    model.wants_images() ? "a model of images" : "model." + model.section));
  format->check_for_model(model);
  check_order(data, model);
  if (model.diffusion) check_scale(data, model);
  if (format->has_images(model.input)) return;
  if (!(data.image == ImageConfig{}))
    throw ConfigError("data.image: given; allowed: only where the data are images, not {}",
                      section);
  if (!(data.augment == AugmentConfig{}))
    throw ConfigError("data.augment: given; allowed: only where the data are images, not {}",
                      section);
}

}  // namespace lockstep

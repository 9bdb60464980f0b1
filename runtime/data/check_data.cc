#include "runtime/data/check_data.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/held_out.h"
#include "runtime/data/named_targets.h"
#include "runtime/data/ordered.h"

namespace lockstep::data {
namespace {

void check_range(const char* field, const std::vector<float>& range) {
  if (range.size() == 2 && range[0] <= range[1]) return;
  config::refuse_value(field,
                       fmt::format("[{}]", fmt::join(range, ", ")),
                       "two numbers, the first at most as large as the second");
}

void check_image(const ImageConfig& image) {
  if (image.resize != 0 && image.resize < image.size)
    config::refuse_value(
        "data.image.resize", image.resize, "0, or at least data.image.size ({})", image.size);
}

// Diffusion models generate images, so the scale of their pixels is fixed.
void check_scale(const DataConfig& data, const config::ModelTraits& model) {
  for (const auto& [field, given] : {std::pair("data.image.mean", &data.image.mean),
                                     std::pair("data.image.std", &data.image.std)}) {
    if (!given->empty())
      config::refuse_value(field,
                           fmt::format("[{}]", fmt::join(*given, ", ")),
                           "unset with model.{}, whose pixels are always in [-1, 1]",
                           model.section);
  }
}

void check_augment(const AugmentConfig& augment) {
  if (const auto& crop = augment.random_resized_crop) {
    check_range("data.augment.random_resized_crop.scale", crop->scale);
    check_range("data.augment.random_resized_crop.ratio", crop->ratio);
  }
}

[[noreturn]] void refuse_targets(const std::string& section, const config::ModelTraits& model) {
  const std::string formats = formats_for(model);
  const char* const targets = config::description_of(model.target_kind());
  if (formats.empty())
    throw ConfigError(
        "{}: value is {}; no data section has {} for this model; allowed: another loss",
        model.field("loss"),
        name_of(model.loss),
        targets);
  config::refuse_value("data",
                       section,
                       "{} with model.{}, whose targets are {} with its loss",
                       formats,
                       model.section,
                       targets);
}

}  // namespace

void validate_data(const RunConfig& config, bool trains) {
  const std::unique_ptr<const DataFormat> format = format_of(config.data);
  format->check();
  check_held_out(config.data, trains);
  check_image(config.data.image);
  check_augment(config.data.augment);
  if (config.eval.every > 0 && !format->has_eval() && !held_out_by(config.data))
    config::refuse_value("eval.every",
                         config.eval.every,
                         "0, because the data section has no evaluation data; "
                         "data.eval_fraction, such as 0.1, holds out a part of the training data");
}

void require_format_for_model(const DataConfig& data, const config::ModelTraits& of_model) {
  const std::unique_ptr<const DataFormat> format = format_of(data);
  const config::ModelTraits model =
      format->supports(of_model.input) ? traits_for_data(data, of_model) : of_model;
  const std::string section = "data." + config::name_of(data.source);
  if (!format->supports(model.input))
    config::refuse_value("data",
                         section,
                         "{} with {}",
                         formats_for(model),
                         model.wants_images() ? "an image model" : "model." + model.section);
  format->check_for_model(model);
  if (!format->provides(model.target_kind(), model.input)) refuse_targets(section, model);
  check_order(data, model);
  if (model.diffusion) check_scale(data, model);
  if (format->has_images(model.input)) return;
  if (!(data.image == ImageConfig{}))
    throw ConfigError("data.image: given, but {} has no images; allowed: with images only",
                      section);
  if (!(data.augment == AugmentConfig{}))
    throw ConfigError("data.augment: given, but {} has no images; allowed: with images only",
                      section);
}

}  // namespace lockstep::data

#include "runtime/data/dataset.h"

#include <utility>

#include "runtime/data/check_data.h"
#include "runtime/data/format.h"
#include "runtime/data/images/flattened.h"
#include "runtime/data/images/image_dataset.h"

namespace lockstep {
namespace {

OpenedSource open_source(const DataConfig& config,
                         const ModelTraits& model,
                         uint64_t seed,
                         bool need_train) {
  check_data_for_model(config, model);
  return format_of(config)->open(model, seed, need_train);
}

}  // namespace

OpenedData open_data(const DataConfig& config,
                     const ModelTraits& model,
                     uint64_t seed,
                     bool need_train) {
  OpenedSource opened = open_source(config, model, seed, need_train);
  if (auto* samples = std::get_if<OpenedData>(&opened)) return std::move(*samples);
  OpenedData images = open_stores(config, std::get<ImageStores>(opened), seed);
  return model.wants_images() ? std::move(images) : flatten_images(std::move(images), model);
}

OpenedData open_unflattened_data(const DataConfig& config,
                                 const ModelTraits& model,
                                 uint64_t seed,
                                 bool need_train) {
  OpenedSource opened = open_source(config, model, seed, need_train);
  if (auto* samples = std::get_if<OpenedData>(&opened)) return std::move(*samples);
  return open_stores(config, std::get<ImageStores>(opened), seed);
}

}  // namespace lockstep

// open_stores(): makes data sets of image stores.

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/image_normalisation.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/named_targets.h"

namespace lockstep::data {
namespace {

// The output has the side data.image.size or the size of the stored images; see ImageConfig.
PipelineSettings settings_for(const DataConfig& config, const ImageStore& store) {
  PipelineSettings settings;
  settings.augment = config.augment;
  settings.exact_jpeg = config.image.exact_jpeg;
  const auto common = store.common_size();
  const int64_t size = config.image.size;
  if (size > 0)
    settings.output = {static_cast<int>(size), static_cast<int>(size)};
  else if (common)
    settings.output = *common;
  else
    throw ConfigError(
        "data.image.size: missing; allowed: 1..8192, because the images differ in size");
  const bool as_stored = common == settings.output && config.image.resize == 0;
  if (!as_stored) {
    const int64_t side = std::max(settings.output.height, settings.output.width);
    settings.resize = config.image.resize > 0 ? config.image.resize : side * 8 / 7;
    if (settings.resize < side)
      throw ConfigError("data.image.resize: value is {}; allowed: at least {}, the size of images",
                        settings.resize,
                        side);
  }
  return settings;
}

}  // namespace

OpenedData open_stores(const DataConfig& config, const ImageStores& stores, uint64_t seed) {
  OpenedData opened;
  DataSummary& summary = opened.summary;
  int64_t resize = 0;  // of the set that is evaluated, if there is one
  const auto open = [&](const std::shared_ptr<const ImageStore>& store) {
    if (config.augment.colour_jitter && store->channels() != 3)
      throw ConfigError(
          "data.augment.colour_jitter: given, but the images have {} channels; allowed: with 3",
          store->channels());
    PipelineSettings settings = settings_for(config, *store);
    resize = settings.resize;
    auto dataset = std::make_unique<ImageDataset>(store, std::move(settings), config, seed);
    const Shape& shape = dataset->input().shape;
    if (summary.height > 0 && Shape{summary.height, summary.width, summary.channels} != shape)
      throw DataError("images for evaluation are {}, but those for training are {}",
                      to_string(shape),
                      to_string(Shape{summary.height, summary.width, summary.channels}));
    summary.height = shape[0];
    summary.width = shape[1];
    summary.channels = shape[2];
    return dataset;
  };
  if (stores.train != nullptr) opened.train = open(stores.train);
  if (stores.eval != nullptr) opened.eval = open(stores.eval);
  summary.features = summary.height * summary.width * summary.channels;
  summary.classes = stores.classes;
  summary.class_names = stores.class_names;
  summary.labels_from = stores.labels_from;
  summary.warnings = stores.warnings;
  summary.bad_records = stores.bad_records;
  config::ImageNormalisation normalisation =
      config::normalisation_of(config, static_cast<size_t>(summary.channels));
  summary.mean = std::move(normalisation.mean);
  summary.std = std::move(normalisation.std);
  summary.preprocessing.images = {summary.height, summary.width, resize, summary.mean, summary.std};
  summary.kind = stores.kind;
  const bool masks = (stores.train != nullptr && stores.train->has_masks()) ||
                     (stores.eval != nullptr && stores.eval->has_masks());
  summary.details = fmt::format(" of {} x {} pixels, {} channels, {} classes{}",
                                summary.height,
                                summary.width,
                                summary.channels,
                                summary.classes,
                                masks ? " of pixels" : "");
  summary.held_out = stores.held_out;
  use_records(stores.train_targets, stores.eval_targets, &opened);
  describe(&opened);
  return opened;
}

}  // namespace lockstep::data

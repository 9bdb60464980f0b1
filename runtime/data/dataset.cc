#include "runtime/data/dataset.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/check_data.h"
#include "runtime/data/format.h"
#include "runtime/data/images/flattened.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/ordered.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep {
namespace {

OpenedSource open_source(const DataConfig& config,
                         const ModelTraits& model,
                         uint64_t seed,
                         bool need_train) {
  check_data_for_model(config, model);
  return format_of(config)->open(model, seed, need_train);
}

// Refuses samples that are of tokens alone where the model needs all rows of them.
void check_samples(const DataConfig& config, const ModelTraits& model, const Dataset* dataset) {
  if (dataset == nullptr || model.input != ModelInput::kTokens || !takes_segments(model)) return;
  const SampleSpec& input = dataset->input();
  if (input.shape.rank() == 2 && input.shape[0] == kTextRows) return;
  throw ConfigError(
      "data.{}: has samples for causal language models alone; model.{} needs another source",
      name_of(config.source),
      model.section);
}

OpenedData samples_of(OpenedSource source,
                      const DataConfig& config,
                      const ModelTraits& model,
                      uint64_t seed) {
  OpenedData opened;
  if (auto* samples = std::get_if<OpenedData>(&source)) {
    check_samples(config, model, samples->train.get());
    check_samples(config, model, samples->eval.get());
    opened = std::move(*samples);
  } else {
    opened = open_stores(config, std::get<ImageStores>(source), seed);
    if (!model.wants_images()) opened = flatten_images(std::move(opened), model);
  }
  return opened;
}

}  // namespace

OpenedData open_data(const DataConfig& config,
                     const ModelTraits& model,
                     uint64_t seed,
                     bool need_train) {
  OpenedData opened = samples_of(open_source(config, model, seed, need_train), config, model, seed);
  order_training(config, &opened);
  return opened;
}

OpenedData open_inputs(const DataConfig& config, const ModelTraits& model, uint64_t seed) {
  check_data_for_model(config, model);
  return samples_of(format_of(config)->open_inputs(model, seed), config, model, seed);
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

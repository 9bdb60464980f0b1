// check_model(): the checks of a config that need to know its model.
#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {
namespace {

void check_mixup(const TrainConfig& train, const ModelTraits& traits) {
  if (train.mixup == 0) return;
  if (!traits.wants_images()) {
    refuse_value(
        "train.mixup",
        train.mixup,
        fmt::format("0, or above it only with a model of images: {}",
                    sections_where([](const auto& other) { return other.wants_images(); })));
  }
  if (train.global_batch == train.lanes) {
    refuse_value("train.mixup",
                 train.mixup,
                 "0, or above it only with 2 samples or more in a lane, where "
                 "train.global_batch / train.lanes has 1");
  }
}

void check_best(const EvalConfig& eval, const ModelTraits& traits) {
  if (eval.best == EvalConfig::Metric::kAccuracy && !traits.has_accuracy()) {
    refuse_value("eval.best",
                 "ACCURACY",
                 fmt::format("LOSS with {} MEAN_SQUARED_ERROR", traits.field("loss")));
  }
}

void check_recompute(const ExecutionConfig& execution, const ModelTraits& traits) {
  if (execution.recompute == ExecutionConfig::Recompute::kNothing || traits.has_blocks) return;
  refuse_value(
      "execution.recompute",
      "BLOCKS",
      fmt::format("NOTHING: only {} has blocks",
                  sections_where([](const auto& other) { return other.has_blocks; }, "model.")));
}

void check_length_buckets(const ExecutionConfig& execution, const ModelTraits& traits) {
  int64_t before = 0;
  for (const int64_t length : execution.length_buckets) {
    constexpr const char* kField = "execution.length_buckets";
    if (traits.input != ModelInput::kTokens)
      refuse_value(kField, length, "none, but with a model of tokens");
    if (length >= traits.context)
      refuse_value(
          kField,
          length,
          fmt::format("lengths below {}, which is {}", traits.field("context"), traits.context));
    if (length <= before)
      refuse_value(kField, length, fmt::format("increasing lengths; the one before is {}", before));
    before = length;
  }
}

}  // namespace

void check_model(const RunConfig& config) {
  check_own_fields(config.model);
  const ModelTraits traits = traits_of(config.model);
  check_mixup(config.train, traits);
  check_best(config.eval, traits);
  check_recompute(config.execution, traits);
  check_length_buckets(config.execution, traits);
}

}  // namespace lockstep

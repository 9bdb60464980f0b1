// check_model(): the checks of a config that need to know its model.
#include <fmt/ranges.h>

#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/task.h"

namespace lockstep {
namespace {

void check_mixup(const TrainConfig& train, const ModelTraits& traits) {
  if (train.mixup == 0) return;
  const auto mixes = [](const ModelTraits& model) {
    return model.wants_images() && !model.diffusion;
  };
  if (!mixes(traits)) {
    refuse_value("train.mixup",
                 train.mixup,
                 fmt::format("0, or above it only with a model that tells the class of images: {}",
                             sections_where(mixes)));
  }
  if (train.global_batch == train.lanes) {
    refuse_value("train.mixup",
                 train.mixup,
                 "0, or above it only with 2 samples or more in a lane, where "
                 "train.global_batch / train.lanes has 1");
  }
}

void check_best(const EvalConfig& eval, const ModelTraits& traits) {
  if (has_metric(traits, eval.best)) return;
  using Metric = EvalConfig::Metric;
  std::string allowed;
  for (int i = 0; i <= static_cast<int>(Metric::kSpearman); ++i) {
    const auto metric = static_cast<Metric>(i);
    if (has_metric(traits, metric))
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name_of(metric));
  }
  refuse_value(
      "eval.best",
      name_of(eval.best),
      fmt::format("{} with model.{} and loss {}", allowed, traits.section, name_of(traits.loss)));
}

}  // namespace

void check_class_weights(const TrainConfig& train, const ModelTraits& traits) {
  const std::vector<float>& weights = train.class_weights;
  if (weights.empty()) return;
  const std::string given = fmt::format("[{}]", fmt::join(weights, ", "));
  const Task task = task_of(traits);
  if (task != Task::kClasses && task != Task::kYesNo)
    refuse_value("train.class_weights",
                 given,
                 fmt::format("none with model.{}, which does not predict classes with this loss",
                             traits.section));
  if (train.mixup > 0)
    refuse_value(
        "train.class_weights", given, "none with train.mixup, which gives a sample two classes");
  const int64_t classes = task == Task::kYesNo ? 2 : traits.outputs;
  if (classes != 0 && classes != static_cast<int64_t>(weights.size()))
    refuse_value("train.class_weights",
                 given,
                 fmt::format("one number for each class, of which there are {}", classes));
}

namespace {

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
  check_class_weights(config.train, traits);
  check_recompute(config.execution, traits);
  check_length_buckets(config.execution, traits);
}

}  // namespace lockstep

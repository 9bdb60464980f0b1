#include "runtime/run/config_checks.h"

#include <fmt/ranges.h>

#include "collectives/layout/exchange_levels.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/config/parse.h"
#include "runtime/config/task.h"
#include "runtime/data/check_data.h"
#include "runtime/run/defaults.h"
#include "runtime/run/resolve.h"

namespace lockstep::run {
namespace {

void check_mixup(const TrainConfig& train, const config::ModelTraits& traits) {
  if (train.mixup == 0) return;
  const auto mixes = [](const config::ModelTraits& model) {
    return model.wants_images() && !model.diffusion &&
           model.target_kind() == config::TargetKind::kClass;
  };
  if (!mixes(traits)) {
    config::refuse_value("train.mixup",
                         train.mixup,
                         "0; above 0 only with a model that classifies images: {}",
                         models::sections_where(mixes));
  }
}

void check_best(const EvalConfig& eval, const config::ModelTraits& traits) {
  if (config::has_metric(traits, eval.best)) return;
  using Metric = EvalConfig::Metric;
  std::string allowed;
  for (int i = 0; i <= static_cast<int>(Metric::kRecallAt10); ++i) {
    const auto metric = static_cast<Metric>(i);
    if (config::has_metric(traits, metric)) append_item(allowed, name_of(metric));
  }
  config::refuse_value("eval.best",
                       name_of(eval.best),
                       "{} with model.{} and loss {}",
                       allowed,
                       traits.section,
                       name_of(traits.loss));
}

void check_contrastive(const TrainConfig& train,
                       const ExecutionConfig& execution,
                       const config::ModelTraits& traits) {
  if (traits.loss != Loss::kContrastive) {
    if (train.contrastive == ContrastiveConfig{}) return;
    throw ConfigError(
        "train.contrastive: given, but model.{} has no contrastive loss; allowed: unset, or with "
        "model.bert and task EMBEDDINGS, or model.onnx and loss CONTRASTIVE",
        traits.section);
  }
  if (train.global_batch == 1)
    config::refuse_value("train.global_batch",
                         train.global_batch,
                         "2 or more with a loss of pairs, which compares samples with each other");
  if (!execution.length_buckets.empty())
    config::refuse_value("execution.length_buckets",
                         execution.length_buckets.front(),
                         "none with a loss of pairs, for which all lanes of a rank run at the same "
                         "time; a smaller {} saves padding",
                         traits.field("context"));
}

void check_preference(const RunConfig& config, const config::ModelTraits& traits) {
  if (traits.target_kind() != config::TargetKind::kPreference) {
    if (config.train.preference == PreferenceConfig{}) return;
    throw ConfigError(
        "train.preference: given, but the data are no pairs of answers; allowed: unset, or with "
        "data.preferences");
  }
  if (traits.text_task == config::TextTask::kAnswers && !config.adapter.lora)
    throw ConfigError(
        "data.preferences: needs adapter.lora with model.{}, because the base without its LoRA is "
        "the reference",
        traits.section);
}

void check_recompute(const ExecutionConfig& execution, const config::ModelTraits& traits) {
  if (execution.recompute == ExecutionConfig::Recompute::kNothing || traits.has_blocks) return;
  config::refuse_value(
      "execution.recompute",
      "BLOCKS",
      "NOTHING: only {} has blocks",
      models::sections_where([](const auto& other) { return other.has_blocks; }, "model."));
}

void check_length_buckets(const ExecutionConfig& execution, const config::ModelTraits& traits) {
  int64_t before = 0;
  for (const int64_t length : execution.length_buckets) {
    constexpr const char* kField = "execution.length_buckets";
    if (traits.input != config::ModelInput::kTokens)
      config::refuse_value(kField, length, "none, because the model's input is not tokens");
    if (length >= traits.context)
      config::refuse_value(
          kField, length, "lengths below {}, which is {}", traits.field("context"), traits.context);
    if (length <= before)
      config::refuse_value(kField, length, "increasing lengths; the one before is {}", before);
    before = length;
  }
}

// Checks the number formats of the computation.
void check_precision(const ExecutionConfig& execution, const exec::OpSet& ops) {
  if (!ops.computes_in(compute_type(execution.precision)))
    throw ConfigError(
        "execution.precision: value is {}; allowed on {}: AUTO, FP32 or BF16, in a new run (a GPU "
        "trains in FP16; lockstep plan --gpu plans for one)",
        name_of(execution.precision),
        ops.device);
  if (ops.separate_memory && execution.bf16x3)
    throw ConfigError(
        "execution.bf16x3: value is true; allowed on {}: false (execution.tf32 is for GPUs)",
        ops.device);
  if (!ops.separate_memory && execution.tf32)
    throw ConfigError("execution.tf32: value is true; allowed on {}: false", ops.device);
}

// Other purposes than training do not read the file.
void check_tune(const ExecutionConfig& execution, RunPurpose purpose, const exec::OpSet& ops) {
  if (purpose == RunPurpose::kTrain && !ops.separate_memory && !execution.tune.empty())
    throw ConfigError(
        "execution.tune: value is '{}'; allowed on {}: none (it is for the libraries of GPUs)",
        execution.tune,
        ops.device);
}

// The device can add a limited number of sums in one call.
void check_tree(const RunConfig& config,
                const collectives::Topology& placed,
                const exec::OpSet& ops) {
  if (config.comm.order == CommConfig::Order::kFast) return;
  collectives::LaneShares shares = {.lanes = static_cast<int>(config.train.lanes),
                                    .ranks = placed.ranks()};
  if (config.comm.zero_stage >= ZeroStage::kStage2)
    shares.order = collectives::LaneOrder::kEachSummed;
  const int terms = collectives::most_terms(placed, shares);
  if (terms <= ops.max_tree_terms) return;
  throw ConfigError(
      "comm.order: value is TREE; allowed for {} sums of {} lanes on {} ranks that meet at a time "
      "on device {}: FAST (TREE adds up to {}, one of each rank of a node and of each node if "
      "train.lanes is the number of ranks times a power of two)",
      terms,
      shares.lanes,
      shares.ranks,
      ops.device,
      ops.max_tree_terms);
}

void check_purpose(const config::ModelTraits& model, RunPurpose purpose) {
  if (model.text_task == config::TextTask::kHiddenStates && purpose != RunPurpose::kPredict)
    throw ConfigError(
        "{}: value is HIDDEN_STATES, which has no loss; allowed: the other tasks, or `lockstep "
        "predict`",
        model.field("task"));
  if (model.text_task == config::TextTask::kAnswers && purpose == RunPurpose::kPredict)
    throw ConfigError(
        "data: value is data.preferences, whose answers a language model only compares; allowed: "
        "`lockstep eval`, or other data, as with --set data.conversations.eval=FILE");
  if (model.diffusion && purpose == RunPurpose::kPredict)
    throw ConfigError(
        "model: is {}, which makes images and predicts nothing; allowed: `lockstep sample`",
        model.section);
}

}  // namespace

void check_samples_of_lanes(const TrainConfig& train) {
  if (train.mixup == 0 || train.global_batch != train.lanes) return;
  config::refuse_value(
      "train.mixup",
      train.mixup,
      "0; above 0 only with 2 samples or more in a lane; train.global_batch / train.lanes is 1");
}

namespace {

void check_pos_weight(const TrainConfig& train, const config::ModelTraits& traits) {
  const std::vector<float>& weights = train.pos_weight;
  if (weights.empty()) return;
  const std::string given = fmt::format("[{}]", fmt::join(weights, ", "));
  if (traits.target_kind() != config::TargetKind::kYesNo)
    config::refuse_value("train.pos_weight",
                         given,
                         "none with model.{}; one or more only with a loss BINARY_CROSS_ENTROPY{}",
                         traits.section,
                         config::predicts_classes(traits) ? ", or train.class_weights" : "");
  if (!train.class_weights.empty())
    config::refuse_value("train.pos_weight", given, "none with train.class_weights");
  const auto count = static_cast<int64_t>(weights.size());
  if (count > 1 && traits.outputs != 0 && traits.outputs != count)
    config::refuse_value("train.pos_weight",
                         given,
                         "one number for all outputs, or one for each output, of which there are "
                         "{}",
                         traits.outputs);
}

}  // namespace

void check_class_weights(const TrainConfig& train, const config::ModelTraits& traits) {
  check_pos_weight(train, traits);
  const std::vector<float>& weights = train.class_weights;
  if (weights.empty()) return;
  const std::string given = fmt::format("[{}]", fmt::join(weights, ", "));
  const bool yes_no = traits.scored_kind() == config::TargetKind::kYesNo && traits.outputs <= 1;
  const bool labels =
      config::predicts_classes(traits) && traits.scored_kind() != config::TargetKind::kDistribution;
  const bool pixels = traits.scored_kind() == config::TargetKind::kPixelClasses;
  if ((!labels && !yes_no && !pixels) || traits.computes_loss)
    config::refuse_value("train.class_weights",
                         given,
                         "none with model.{}, which does not predict classes with this loss",
                         traits.section);
  if (train.mixup > 0)
    config::refuse_value(
        "train.class_weights", given, "none with train.mixup, which gives a sample two classes");
  const int64_t classes = yes_no ? 2 : traits.outputs;
  if (classes != 0 && classes != static_cast<int64_t>(weights.size()))
    config::refuse_value(
        "train.class_weights", given, "one number for each class, of which there are {}", classes);
}

void check_config(const OpenedConfig& opened, RunPurpose purpose) {
  const RunConfig& config = opened.config;
  const config::ModelTraits& traits = opened.model->traits();
  data::validate_data(config, purpose == RunPurpose::kTrain);
  check_contrastive(config.train, config.execution, traits);
  check_preference(config, traits);
  opened.model->check();
  check_mixup(config.train, traits);
  check_samples_of_lanes(config.train);
  check_best(config.eval, traits);
  check_class_weights(config.train, traits);
  check_recompute(config.execution, traits);
  check_length_buckets(config.execution, traits);
  data::require_format_for_model(config.data, traits);
}

void check_for_device(const OpenedConfig& opened,
                      const collectives::Topology& placed,
                      RunPurpose purpose,
                      const exec::OpSet& ops) {
  const RunConfig config = config_for(purpose, opened.config);
  config::validate_for_ranks(config, placed.ranks());
  check_precision(config.execution, ops);
  check_tune(config.execution, purpose, ops);
  check_tree(config, placed, ops);
  check_purpose(opened.model->traits(), purpose);
}

}  // namespace lockstep::run

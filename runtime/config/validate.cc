#include "runtime/config/validate.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/run_config.pb.h"
#include "runtime/config/validate_data.h"

namespace lockstep {
namespace {

void validate_name(const std::string& name) {
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  const bool ok = !name.empty() && name.size() <= 100 && name[0] != '.' && name[0] != '-' &&
                  std::all_of(name.begin(), name.end(), safe);
  if (!ok) {
    refuse_value("name",
                 in_quotes(name),
                 "1..100 letters, digits, '.', '_' and '-', beginning with a letter, digit or '_'");
  }
}

void validate_mlp(const MlpConfig& mlp) {
  if (mlp.label_smoothing > 0 && mlp.loss != Loss::kSoftmaxCrossEntropy) {
    refuse_value("model.mlp.label_smoothing",
                 mlp.label_smoothing,
                 "0, or above it only with model.mlp.loss SOFTMAX_CROSS_ENTROPY");
  }
  if (mlp.dropout > 0 && mlp.hidden.empty()) {
    refuse_value("model.mlp.dropout",
                 mlp.dropout,
                 "0, or above it only with model.mlp.hidden layers, whose outputs it drops");
  }
  if (mlp.outputs > 1 && mlp.loss == Loss::kBinaryCrossEntropy) {
    refuse_value(
        "model.mlp.outputs", mlp.outputs, "0 or 1 with model.mlp.loss BINARY_CROSS_ENTROPY");
  }
}

void validate_gpt(const GptConfig& gpt) {
  if (gpt.width % gpt.heads != 0) {
    refuse_value("model.gpt.heads",
                 gpt.heads,
                 fmt::format("a divisor of model.gpt.width, which is {}", gpt.width));
  }
}

void validate_resnet(const ResnetConfig& resnet) {
  constexpr int64_t kImagenetDepths[] = {18, 34, 50, 101}, kCifarDepths[] = {20, 32, 56, 110};
  const auto is_in = [&](const auto& depths) {
    return std::find(std::begin(depths), std::end(depths), resnet.depth) != std::end(depths);
  };
  if (!is_in(kImagenetDepths) && !is_in(kCifarDepths)) {
    refuse_value(
        "model.resnet.depth", resnet.depth, "18, 34, 50, 101 (ImageNet), 20, 32, 56, 110 (CIFAR)");
  }
  if (resnet.shortcut == ResnetConfig::Shortcut::kPadded && is_in(kImagenetDepths)) {
    refuse_value("model.resnet.shortcut",
                 "PADDED",
                 fmt::format("PROJECTION with model.resnet.depth {}; PADDED with 20, 32, 56, 110",
                             resnet.depth));
  }
}

void validate_vgg(const VggConfig& vgg) {
  if (vgg.sync_batch_norm && !vgg.batch_norm)
    refuse_value("model.vgg.sync_batch_norm", "true", "false without model.vgg.batch_norm");
}

void validate_lenet(const LenetConfig& lenet) {
  if (lenet.activation == Activation::kRelu || lenet.activation == Activation::kTanh) return;
  refuse_value("model.lenet.activation",
               proto::Activation_Name(static_cast<proto::Activation>(lenet.activation)),
               "RELU or TANH");
}

void validate_train(const TrainConfig& train) {
  if (!std::has_single_bit(static_cast<uint64_t>(train.lanes))) {
    refuse_value("train.lanes", train.lanes, "a power of two in 1..4096");
  }
  if (train.global_batch % train.lanes != 0) {
    refuse_value("train.global_batch",
                 train.global_batch,
                 fmt::format("a multiple of train.lanes, which is {}", train.lanes));
  }
  if (train.steps == 0 && train.epochs == 0) {
    throw ConfigError(
        "train.steps: missing, and so is train.epochs; allowed: exactly one of the two, above 0");
  }
  if (train.steps != 0 && train.epochs != 0) {
    refuse_value("train.epochs",
                 train.epochs,
                 fmt::format("exactly one of train.epochs and train.steps, which is {}; set the "
                             "other one to 0",
                             train.steps));
  }
}

void validate_mixup(const RunConfig& config) {
  const TrainConfig& train = config.train;
  if (train.mixup == 0) return;
  if (!wants_images(config.model)) {
    refuse_value("train.mixup",
                 train.mixup,
                 "0, or above it only with a model of images: resnet, vgg, alexnet or lenet");
  }
  if (train.global_batch == train.lanes) {
    refuse_value("train.mixup",
                 train.mixup,
                 "0, or above it only with 2 samples or more in a lane, where "
                 "train.global_batch / train.lanes has 1");
  }
}

void validate_optimizer(const OptimizerConfig& optimizer) {
  const SgdConfig* sgd = std::get_if<SgdConfig>(&optimizer.kind);
  if (sgd != nullptr && sgd->nesterov && sgd->momentum == 0) {
    refuse_value("optimizer.sgd.nesterov",
                 sgd->nesterov,
                 "true only with optimizer.sgd.momentum above 0, which is 0");
  }
}

void validate_milestones(const ScheduleConfig& schedule) {
  const auto& milestones = schedule.milestones;
  if (schedule.kind != ScheduleConfig::Kind::kStep) {
    if (milestones.empty()) return;
    refuse_value("schedule.milestones", milestones.front(), "none, except with schedule.kind STEP");
  }
  if (milestones.empty()) {
    throw ConfigError(
        "schedule.milestones: missing; allowed with schedule.kind STEP: one or more increasing "
        "steps");
  }
  for (size_t i = 1; i < milestones.size(); ++i) {
    if (milestones[i] > milestones[i - 1]) continue;
    refuse_value("schedule.milestones",
                 milestones[i],
                 fmt::format("increasing steps; the one before it is {}", milestones[i - 1]));
  }
}

void validate_schedule(const ScheduleConfig& schedule) {
  using Kind = ScheduleConfig::Kind;
  const bool has_minimum = schedule.kind != Kind::kConstant && schedule.kind != Kind::kStep;
  if (schedule.min_lr > 0 && !has_minimum) {
    refuse_value("schedule.min_lr",
                 schedule.min_lr,
                 "0 with schedule.kind CONSTANT or STEP, which have no minimum");
  }
  if (schedule.min_lr > schedule.lr) {
    refuse_value("schedule.min_lr",
                 schedule.min_lr,
                 fmt::format("at most schedule.lr, which is {}", schedule.lr));
  }
  validate_milestones(schedule);
  if (schedule.decay_steps > 0 && schedule.kind != Kind::kWarmupStableDecay) {
    refuse_value("schedule.decay_steps",
                 schedule.decay_steps,
                 "0, or above it only with schedule.kind WARMUP_STABLE_DECAY");
  }
  if (schedule.decay_steps == 0 && schedule.kind == Kind::kWarmupStableDecay) {
    throw ConfigError(
        "schedule.decay_steps: missing; allowed with schedule.kind WARMUP_STABLE_DECAY: 1 or more "
        "steps");
  }
}

void validate_eval(const RunConfig& config) {
  const EvalConfig& eval = config.eval;
  if (eval.early_stop_patience > 0 && eval.every == 0) {
    refuse_value("eval.early_stop_patience",
                 eval.early_stop_patience,
                 "0, or above it only with eval.every above 0, which is 0");
  }
  if (eval.every > 0 && !has_eval_data(config.data)) {
    refuse_value("eval.every",
                 eval.every,
                 "0, or above it only with evaluation data in the data section, which has none");
  }
  const MlpConfig* mlp = std::get_if<MlpConfig>(&config.model);
  if (eval.best == EvalConfig::Metric::kAccuracy && mlp != nullptr &&
      mlp->loss == Loss::kMeanSquaredError) {
    refuse_value("eval.best", "ACCURACY", "LOSS with model.mlp.loss MEAN_SQUARED_ERROR");
  }
}

void validate_wire(const CommConfig& comm) {
  if (comm.wire_dtype == Precision::kFp32 || comm.order == CommConfig::Order::kTree) return;
  refuse_value("comm.wire_dtype",
               proto::DataType_Name(static_cast<proto::DataType>(comm.wire_dtype)),
               "FP32 with comm.order FAST (a library would add in the type that travels)");
}

void validate_power_sgd(const RunConfig& config) {
  const CommConfig& comm = config.comm;
  const auto refuse = [&](const std::string& with) {
    refuse_value("comm.power_sgd_rank", comm.power_sgd_rank, "0, or above it only with " + with);
  };
  if (comm.power_sgd_rank == 0) return;
  if (comm.zero_stage != 0) {
    refuse(fmt::format("comm.zero_stage 0, which is {} (parameters would travel whole)",
                       comm.zero_stage));
  }
  if (comm.order != CommConfig::Order::kTree) refuse("comm.order TREE");
  if (comm.wire_dtype != Precision::kFp32) refuse("comm.wire_dtype FP32");
  if (has_fp16_gradients(config)) {
    refuse("execution.precision FP32 or BF16 (the loss scale of FP16 changes between steps)");
  }
}

void validate_error_feedback(const RunConfig& config) {
  const CommConfig& comm = config.comm;
  if (!comm.error_feedback) return;
  if (comm.wire_dtype != Precision::kBf16) {
    refuse_value("comm.error_feedback", "true", "false, or true with comm.wire_dtype BF16");
  }
  if (comm.zero_stage > 1) {
    refuse_value("comm.error_feedback",
                 "true",
                 fmt::format("false, or true with comm.zero_stage 0 or 1, which is {} (what is "
                             "kept is as large as the gradients)",
                             comm.zero_stage));
  }
  if (has_fp16_gradients(config)) {
    refuse_value("comm.error_feedback",
                 "true",
                 "false with execution.precision FP16 (its loss scale changes between steps)");
  }
}

void validate_residual_groups(const RunConfig& config) {
  if (config.comm.residual_groups != 0 && residual_groups(config) == 0) {
    refuse_value("comm.residual_groups",
                 config.comm.residual_groups,
                 "left out, but with comm.error_feedback or comm.power_sgd_rank");
  }
  const CommConfig& comm = config.comm;
  const int64_t groups = comm.residual_groups, lanes = config.train.lanes;
  if (groups != 0 && (!std::has_single_bit(static_cast<uint64_t>(groups)) || groups > lanes)) {
    refuse_value("comm.residual_groups",
                 groups,
                 fmt::format("a power of two up to train.lanes, which is {}", lanes));
  }
}

void validate_execution(const RunConfig& config) {
  using Recompute = ExecutionConfig::Recompute;
  const ExecutionConfig& execution = config.execution;
  if (execution.tf32 && execution.precision != Precision::kFp32) {
    refuse_value("execution.tf32", "true", "false, but with execution.precision FP32");
  }
  if (execution.bf16x3 && execution.precision != Precision::kFp32) {
    refuse_value("execution.bf16x3", "true", "false, but with execution.precision FP32");
  }
  if (execution.recompute != Recompute::kNothing &&
      !std::holds_alternative<GptConfig>(config.model)) {
    refuse_value("execution.recompute", "BLOCKS", "NOTHING: only model.gpt has blocks");
  }
  const ExecutionConfig defaults;
  if (has_fp16_gradients(config)) return;
  constexpr const char* kAllowed =
      "left out, but with FP16 as execution.precision or comm.wire_dtype";
  if (execution.loss_scale != defaults.loss_scale) {
    refuse_value("execution.loss_scale", execution.loss_scale, kAllowed);
  }
  if (execution.loss_scale_growth_steps != defaults.loss_scale_growth_steps) {
    refuse_value("execution.loss_scale_growth_steps", execution.loss_scale_growth_steps, kAllowed);
  }
}

}  // namespace

void validate_schedule_length(const ScheduleConfig& schedule, int64_t steps) {
  if (schedule.warmup_steps >= steps) {
    refuse_value("schedule.warmup_steps",
                 schedule.warmup_steps,
                 fmt::format("below train.steps, which is {}", steps));
  }
  if (schedule.decay_steps > steps - schedule.warmup_steps) {
    refuse_value("schedule.decay_steps",
                 schedule.decay_steps,
                 fmt::format("at most train.steps - schedule.warmup_steps, which is {}",
                             steps - schedule.warmup_steps));
  }
}

void validate(const RunConfig& config) {
  validate_name(config.name);
  if (const auto* mlp = std::get_if<MlpConfig>(&config.model)) validate_mlp(*mlp);
  if (const auto* gpt = std::get_if<GptConfig>(&config.model)) validate_gpt(*gpt);
  if (const auto* resnet = std::get_if<ResnetConfig>(&config.model)) validate_resnet(*resnet);
  if (const auto* vgg = std::get_if<VggConfig>(&config.model)) validate_vgg(*vgg);
  if (const auto* lenet = std::get_if<LenetConfig>(&config.model)) validate_lenet(*lenet);
  validate_data(config.data);
  validate_data_for_model(config.data, config.model);
  validate_train(config.train);
  validate_mixup(config);
  validate_optimizer(config.optimizer);
  validate_schedule(config.schedule);
  if (config.train.steps > 0) validate_schedule_length(config.schedule, config.train.steps);
  validate_eval(config);
  validate_wire(config.comm);
  validate_error_feedback(config);
  validate_power_sgd(config);
  validate_residual_groups(config);
  validate_execution(config);
}

}  // namespace lockstep

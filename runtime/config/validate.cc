#include "runtime/config/validate.h"

#include <algorithm>
#include <bit>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/config/pattern.h"

namespace lockstep::config {
namespace {

void validate_name(const std::string& name) {
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  const bool ok = !name.empty() && name.size() <= 100 && name[0] != '.' && name[0] != '-' &&
                  std::ranges::all_of(name, safe);
  if (!ok) {
    refuse_value("name",
                 in_quotes(name),
                 "1..100 letters, digits, '.', '_' and '-', beginning with a letter, digit or '_'");
  }
}

void validate_train(const TrainConfig& train) {
  if (train.lanes != 0 && train.global_batch % train.lanes != 0) {
    refuse_value("train.global_batch",
                 train.global_batch,
                 "a multiple of train.lanes, which is {}",
                 train.lanes);
  }
  if (train.steps == 0 && train.epochs == 0) {
    throw ConfigError(
        "train.steps: missing, and so is train.epochs; allowed: exactly one of the two, above 0");
  }
  if (train.steps != 0 && train.epochs != 0) {
    refuse_value("train.epochs",
                 train.epochs,
                 "exactly one of train.epochs and train.steps, which is {}; set the "
                 "other one to 0",
                 train.steps);
  }
}

void validate_groups(const TrainConfig& train) {
  for (size_t i = 0; i < train.groups.size(); ++i) {
    const GroupConfig& group = train.groups[i];
    const std::string path = fmt::format("train.groups[{}].", i);
    Pattern(path + "match", group.match);
    if (group.weight_decay < 0 && group.weight_decay != -1)
      refuse_value(path + "weight_decay", group.weight_decay, "at least 0, or -1");
  }
}

void validate_adapter(const AdapterConfig& adapter) {
  if (!adapter.lora) return;
  Pattern("adapter.lora.match", adapter.lora->match);
  Pattern("adapter.lora.train_also", adapter.lora->train_also);
}

void validate_optimizer(const OptimizerConfig& optimizer) {
  const SgdConfig* sgd = std::get_if<SgdConfig>(&optimizer.kind);
  if (sgd != nullptr && sgd->nesterov && sgd->momentum == 0) {
    refuse_value("optimizer.sgd.nesterov",
                 sgd->nesterov,
                 "false; true only with optimizer.sgd.momentum above 0");
  }
}

void validate_adafactor(const OptimizerConfig& optimizer) {
  if (std::holds_alternative<AdafactorConfig>(optimizer.kind) &&
      optimizer.moments != OptimizerConfig::MomentType::kFp32)
    refuse_value("optimizer.moments",
                 optimizer.moments == OptimizerConfig::MomentType::kBf16 ? "BF16" : "INT8",
                 "FP32 with optimizer.adafactor, which keeps next to no moments");
}

void validate_muon(const RunConfig& config) {
  const auto* muon = std::get_if<MuonConfig>(&config.optimizer.kind);
  if (muon == nullptr) return;
  Pattern("optimizer.muon.adamw_match", muon->adamw_match);
  if (config.comm.power_sgd_rank > 0)
    refuse_value("comm.power_sgd_rank",
                 config.comm.power_sgd_rank,
                 "0 with optimizer.muon, which cannot make a gradient orthogonal that PowerSGD "
                 "approximates");
}

void validate_guard(const RunConfig& config) {
  const GuardConfig& guard = config.guard;
  if (guard.on_damage == FaultPolicy::kSkipStep)
    refuse_value("guard.on_damage", "SKIP_STEP", "STOP or ROLL_BACK");
  const bool keeps_residuals = config.comm.error_feedback || config.comm.power_sgd_rank > 0;
  if (guard.on_not_finite == FaultPolicy::kSkipStep && keeps_residuals)
    refuse_value(
        "guard.on_not_finite",
        "SKIP_STEP",
        "STOP or ROLL_BACK with comm.error_feedback or comm.power_sgd_rank, whose residuals "
        "the step has changed");
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
                 "increasing steps; the one before it is {}",
                 milestones[i - 1]);
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
    refuse_value(
        "schedule.min_lr", schedule.min_lr, "at most schedule.lr, which is {}", schedule.lr);
  }
  validate_milestones(schedule);
  if (schedule.warmup_steps > 0 && schedule.kind == Kind::kOneCycle) {
    refuse_value("schedule.warmup_steps",
                 schedule.warmup_steps,
                 "0 with schedule.kind ONE_CYCLE, which has its own warm-up");
  }
  if (schedule.decay_steps > 0 && schedule.kind != Kind::kWarmupStableDecay) {
    refuse_value("schedule.decay_steps",
                 schedule.decay_steps,
                 "0; above 0 only with schedule.kind WARMUP_STABLE_DECAY");
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
                 "0 while eval.every is 0; set eval.every too");
  }
}

void validate_plateau(const RunConfig& config) {
  if (config.schedule.kind == ScheduleConfig::Kind::kPlateau && config.eval.every == 0) {
    refuse_value("schedule.kind",
                 "PLATEAU",
                 "another kind while eval.every is 0 (PLATEAU needs evaluations)");
  }
}

void validate_local_checkpoints(const LocalCheckpointConfig& local) {
  if (local.folder.empty() == (local.every == 0)) return;
  refuse_value("checkpoint.local.every",
               local.every,
               local.folder.empty() ? "0; above 0 only with checkpoint.local.folder"
                                    : "above 0 with checkpoint.local.folder");
}

void validate_wire(const CommConfig& comm) {
  if (comm.wire_dtype == CommConfig::WireType::kFp32 || comm.order == CommConfig::Order::kTree)
    return;
  refuse_value("comm.wire_dtype",
               lockstep::name_of(comm.wire_dtype),
               "FP32 with comm.order FAST (the library would add in the transmitted type)");
}

void validate_power_sgd(const RunConfig& config) {
  const CommConfig& comm = config.comm;
  const auto refuse = [&](const std::string& with) {
    refuse_value("comm.power_sgd_rank", comm.power_sgd_rank, "0 with " + with);
  };
  if (comm.power_sgd_rank == 0) return;
  if (comm.zero_stage > ZeroStage::kStage0) {
    refuse(fmt::format("comm.zero_stage {} (parameters would be sent in full)",
                       static_cast<int>(comm.zero_stage)));
  }
  if (comm.order != CommConfig::Order::kTree) refuse("comm.order FAST");
  if (comm.wire_dtype != CommConfig::WireType::kFp32) refuse("a comm.wire_dtype other than FP32");
  if (has_fp16_gradients(config)) {
    refuse("execution.precision FP16 (its loss scale changes between steps)");
  }
}

void validate_error_feedback(const RunConfig& config) {
  const CommConfig& comm = config.comm;
  if (!comm.error_feedback) return;
  if (comm.wire_dtype != CommConfig::WireType::kBf16) {
    refuse_value("comm.error_feedback", "true", "false, or true with comm.wire_dtype BF16");
  }
  if (comm.zero_stage > ZeroStage::kStage1) {
    refuse_value("comm.error_feedback",
                 "true",
                 "false with comm.zero_stage {} (residuals are as large as gradients)",
                 static_cast<int>(comm.zero_stage));
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
                 "0, except with comm.error_feedback or comm.power_sgd_rank");
  }
  require_residual_groups(config, 1);
}

void validate_output(const OutputConfig& output) {
  const std::string none = OutputConfig{}.prometheus_address;
  if (output.prometheus_port == 0 && output.prometheus_address != none)
    refuse_value("output.prometheus_address",
                 in_quotes(output.prometheus_address),
                 "{}, except with output.prometheus_port above 0",
                 in_quotes(none));
}

void validate_execution(const RunConfig& config) {
  const ExecutionConfig& execution = config.execution;
  const bool halves =
      execution.precision == Precision::kBf16 || execution.precision == Precision::kFp16;
  constexpr const char* kOfFp32 = "false, or true with execution.precision FP32 or AUTO";
  if (execution.tf32 && halves) refuse_value("execution.tf32", "true", kOfFp32);
  if (execution.bf16x3 && halves) refuse_value("execution.bf16x3", "true", kOfFp32);
  const ExecutionConfig defaults;
  if (has_fp16_gradients(config)) return;
  constexpr const char* kAllowed =
      "the default, except with FP16 as execution.precision or comm.wire_dtype";
  if (execution.loss_scale != defaults.loss_scale) {
    refuse_value("execution.loss_scale", execution.loss_scale, kAllowed);
  }
  if (execution.loss_scale_growth_steps != defaults.loss_scale_growth_steps) {
    refuse_value("execution.loss_scale_growth_steps", execution.loss_scale_growth_steps, kAllowed);
  }
}

}  // namespace

// PowerSGD adds up the lanes of a group by itself. Otherwise a group must be a node of the tree.
void require_residual_groups(const RunConfig& config, int ranks) {
  const int64_t groups = config.comm.residual_groups, lanes = config.train.lanes;
  if (groups == 0 || lanes == 0) return;
  const auto is_allowed = [&](int64_t number) {
    return number >= ranks && lanes % number == 0 &&
           (number == 1 || config.comm.power_sgd_rank > 0 ||
            std::has_single_bit(static_cast<uint64_t>(lanes / number)));
  };
  if (is_allowed(groups)) return;
  std::vector<std::string> allowed = {"0"};
  for (int64_t number = 1; number <= lanes; ++number)
    if (is_allowed(number)) allowed.push_back(std::to_string(number));
  refuse_value("comm.residual_groups",
               groups,
               "{} with train.lanes {}{}",
               joined(allowed),
               lanes,
               ranks > 1 ? fmt::format(" on {} ranks", ranks) : "");
}

void validate_schedule_length(const ScheduleConfig& schedule, int64_t steps) {
  if (schedule.warmup_steps >= steps) {
    refuse_value(
        "schedule.warmup_steps", schedule.warmup_steps, "below train.steps, which is {}", steps);
  }
  if (schedule.decay_steps > steps - schedule.warmup_steps) {
    refuse_value("schedule.decay_steps",
                 schedule.decay_steps,
                 "at most train.steps - schedule.warmup_steps, which is {}",
                 steps - schedule.warmup_steps);
  }
}

void validate(const RunConfig& config) {
  validate_name(config.name);
  validate_train(config.train);
  validate_groups(config.train);
  validate_adapter(config.adapter);
  validate_optimizer(config.optimizer);
  validate_adafactor(config.optimizer);
  validate_muon(config);
  validate_schedule(config.schedule);
  if (config.train.steps > 0) validate_schedule_length(config.schedule, config.train.steps);
  validate_eval(config);
  validate_plateau(config);
  validate_local_checkpoints(config.checkpoint.local);
  validate_wire(config.comm);
  validate_error_feedback(config);
  validate_guard(config);
  validate_power_sgd(config);
  validate_residual_groups(config);
  validate_execution(config);
  validate_output(config.output);
}

}  // namespace lockstep::config

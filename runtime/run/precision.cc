#include "runtime/run/precision.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/validate.h"
#include "runtime/run/defaults.h"

namespace lockstep::run {
namespace {

struct Choice {
  Precision precision;
  std::string reason;
};

// GPUs generate in FP32 alone.
bool computes_in(Precision precision, RunPurpose purpose, const exec::OpSet& ops) {
  if (purpose == RunPurpose::kGenerate && ops.separate_memory) return precision == Precision::kFp32;
  return ops.computes_in(compute_type(precision));
}

Choice meaning_of_auto(const OpenedConfig& opened,
                       RunPurpose purpose,
                       const exec::OpSet& ops,
                       const std::optional<Precision>& recorded) {
  const ExecutionConfig& execution = opened.config.execution;
  if (execution.tf32) return {Precision::kFp32, "AUTO with execution.tf32"};
  if (execution.bf16x3) return {Precision::kFp32, "AUTO with execution.bf16x3"};
  if (recorded) return {*recorded, "AUTO, as the run recorded"};
  if (!ops.separate_memory || purpose == RunPurpose::kGenerate) return {Precision::kFp32, "AUTO"};
  const std::string needs_fp32 = opened.model->reason_for_fp32();
  if (!needs_fp32.empty()) return {Precision::kFp32, "AUTO, because " + needs_fp32};
  return {Precision::kBf16, "AUTO"};
}

// The same for precisions that the config names: see config_checks.h.
void check_resumed(const Choice& choice, const exec::OpSet& ops) {
  if (ops.computes_in(compute_type(choice.precision))) return;
  throw ConfigError(
      "execution.precision: the run was trained in {0}, which device {1} cannot train in; allowed: "
      "a GPU, or --set execution.precision=FP32 with --allow-change execution.precision, which "
      "gives other bits",
      name_of(choice.precision),
      ops.device);
}

// What the device cannot do is left out, which is possible because nothing is trained. Returns
// the reasons.
std::string adapt_to_device(RunPurpose purpose,
                            const exec::OpSet& ops,
                            ExecutionConfig& execution) {
  const bool generates = purpose == RunPurpose::kGenerate;
  std::string reasons;
  const auto add = [&](const std::string& reason) { append_item(reasons, reason, "; "); };
  if (!computes_in(execution.precision, purpose, ops)) {
    add(fmt::format("the run's is {}, in which device {} does not {}",
                    name_of(execution.precision),
                    ops.device,
                    generates ? "generate" : "compute"));
    execution.precision = Precision::kFp32;
  }
  if (generates) return reasons;  // without tf32 and bf16x3 on any device
  bool& lacking = ops.separate_memory ? execution.bf16x3 : execution.tf32;
  if (lacking) {
    add(fmt::format("without execution.{}, which device {} does not have",
                    ops.separate_memory ? "bf16x3" : "tf32",
                    ops.device));
    lacking = false;
  }
  return reasons;
}

}  // namespace

std::string ChosenPrecision::text() const {
  const char* const name = name_of(opened.config.execution.precision);
  return reason.empty() ? name : fmt::format("{} ({})", name, reason);
}

ChosenPrecision choose_precision(const OpenedConfig& opened,
                                 RunPurpose purpose,
                                 const exec::OpSet& ops,
                                 std::optional<Precision> recorded) {
  ChosenPrecision chosen{opened, "", false};
  RunConfig& config = chosen.opened.config;
  const bool trains = purpose == RunPurpose::kTrain;
  if (config.execution.precision == Precision::kAuto) {
    const Choice choice = meaning_of_auto(opened, purpose, ops, recorded);
    if (trains) check_resumed(choice, ops);
    config.execution.precision = choice.precision;
    chosen.reason = choice.reason;
    if (trains) config::validate(config);  // fields that exclude each other
  }
  const bool usually_bf16 = ops.separate_memory && purpose != RunPurpose::kGenerate;
  chosen.worth_logging = usually_bf16 || config.execution.precision != Precision::kFp32;
  if (trains) return chosen;
  const std::string adapted = adapt_to_device(purpose, ops, config.execution);
  if (adapted.empty()) return chosen;
  chosen.reason = adapted;
  chosen.worth_logging = true;
  return chosen;
}

}  // namespace lockstep::run

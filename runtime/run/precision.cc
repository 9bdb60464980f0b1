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

Choice meaning_of_auto(const OpenedConfig& opened,
                       const exec::OpSet& ops,
                       const std::optional<Precision>& recorded) {
  const ExecutionConfig& execution = opened.config.execution;
  if (execution.tf32) return {Precision::kFp32, "AUTO with execution.tf32"};
  if (execution.bf16x3) return {Precision::kFp32, "AUTO with execution.bf16x3"};
  if (recorded) return {*recorded, "AUTO, as the run recorded"};
  if (!ops.separate_memory) return {Precision::kFp32, "AUTO"};
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
std::string adapt_to_device(const exec::OpSet& ops, ExecutionConfig& execution) {
  std::string reasons;
  const auto add = [&](const std::string& reason) { append_item(reasons, reason, "; "); };
  if (!ops.computes_in(compute_type(execution.precision))) {
    add(fmt::format("the run's is {}, in which device {} does not compute",
                    name_of(execution.precision),
                    ops.device));
    execution.precision = Precision::kFp32;
  }
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
    const Choice choice = meaning_of_auto(opened, ops, recorded);
    if (trains) check_resumed(choice, ops);
    config.execution.precision = choice.precision;
    chosen.reason = choice.reason;
    if (trains) config::validate(config);  // fields that exclude each other
  }
  chosen.worth_logging = ops.separate_memory || config.execution.precision != Precision::kFp32;
  if (trains) return chosen;
  const std::string adapted = adapt_to_device(ops, config.execution);
  if (adapted.empty()) return chosen;
  chosen.reason = adapted;
  chosen.worth_logging = true;
  return chosen;
}

}  // namespace lockstep::run

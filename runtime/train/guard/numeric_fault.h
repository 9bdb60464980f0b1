#pragma once

#include "collectives/agree/agreement.h"
#include "runtime/config/run_config.h"

namespace lockstep::train {

// The remedy if training has diverged.
inline std::string smaller_updates(const RunConfig& config) {
  return fmt::format("a lower schedule.lr than {:g}, more warmup_steps, or {}optimizer.clip_norm",
                     config.schedule.lr,
                     config.optimizer.clip_norm > 0 ? "a lower " : "");
}

// "targets scaled to about 1", for "inputs", "targets" or both; a table can do that by itself.
inline std::string scaled(const std::string& what, const RunConfig& config) {
  const bool targets =
      what.ends_with("targets") && std::holds_alternative<TableConfig>(config.data.source);
  return fmt::format(
      "{} scaled to about 1{}", what, targets ? " (data.table.standardise_target: true)" : "");
}

// Bits have changed by themselves, or numbers are not finite. Has the code kNumeric and is thrown
// on all ranks alike. `policy`: the config's policy for such faults.
class NumericFault : public collectives::AgreedError {
 public:
  NumericFault(FaultPolicy policy, const std::string& what)
      : collectives::AgreedError(ExitCode::kNumeric, what), policy_(policy) {}
  FaultPolicy policy() const { return policy_; }

 private:
  FaultPolicy policy_;
};

}  // namespace lockstep::train

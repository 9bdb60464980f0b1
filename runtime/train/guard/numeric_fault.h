#pragma once

#include "collectives/agreement.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// The remedy if training has diverged.
inline constexpr char kSmallerUpdates[] =
    "a lower schedule.lr, more warmup_steps, or optimizer.clip_norm";

// Bits have changed by themselves, or numbers are not finite. Has the code kNumeric and is thrown
// on all ranks alike. `policy`: the config's policy for such faults.
class NumericFault : public AgreedError {
 public:
  NumericFault(FaultPolicy policy, const std::string& what)
      : AgreedError(ExitCode::kNumeric, what), policy_(policy) {}
  FaultPolicy policy() const { return policy_; }

 private:
  FaultPolicy policy_;
};

}  // namespace lockstep

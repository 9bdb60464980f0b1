#pragma once
// Checks that the weights of all ranks are equal and finite. Otherwise the run ends on every rank,
// with an error that names the checkpoint to resume from.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/guard/numeric_fault.h"
#include "runtime/train/run_context.h"

namespace lockstep {

class WeightsAgreement {
 public:
  // Both are borrowed.
  WeightsAgreement(const RunContext& context, const RunMemory& memory);

  // Returns the hash of the weights after `step` steps, of which every rank has all or its part.
  // Throws NumericFault if replicas differ, a weight is not finite, or frozen weights differ from
  // those at the first call. Collective: all ranks call it together.
  uint64_t hash(int64_t step);
  // Throw NumericFault. Call them on all ranks, about something that every rank has seen. `remedy`:
  // the change that lets the run continue; empty if none is needed.
  [[noreturn]] void refuse_not_finite(int64_t step,
                                      const std::string& what,
                                      const std::string& remedy) const;
  [[noreturn]] void refuse_damage(const std::string& what) const;
  // The checkpoint of this step is good.
  void checkpoint_done(int64_t step) { good_checkpoint_ = step; }

 private:
  const RunContext& context_;
  const RunMemory& memory_;
  WeightsHash weights_hash_;
  std::optional<uint64_t> frozen_;          // hash of the frozen weights
  std::optional<int64_t> good_checkpoint_;  // the newest, as far as this process knows
};

}  // namespace lockstep

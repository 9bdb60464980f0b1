#pragma once
// That the weights of all ranks are the same, and numbers: a run with others ends on every rank,
// and says what to resume from.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/train/checkpoints/weights.h"
#include "runtime/train/guard/numeric_fault.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

class WeightsAgreement {
 public:
  // Both are borrowed.
  WeightsAgreement(const RunParts& parts, const RunMemory& memory);

  // The hash of the weights after `step` steps, of which every rank has all or its part. All ranks
  // together. Throws NumericFault where replicas differ, a weight is not finite, or frozen weights are
  // not what they were at the first call.
  uint64_t hash(int64_t step);
  // Throw NumericFault. To be called on all ranks, of what every one of them has seen. `remedy`: with
  // what the run may go on.
  [[noreturn]] void refuse_not_finite(int64_t step,
                                      const std::string& what,
                                      const std::string& remedy = kSmallerUpdates) const;
  [[noreturn]] void refuse_damage(const std::string& what) const;
  // The checkpoint of this step is good.
  void checkpoint_done(int64_t step) { good_checkpoint_ = step; }

 private:
  const RunParts& parts_;
  const RunMemory& memory_;
  WeightsHash weights_hash_;
  std::optional<uint64_t> frozen_;          // hash of the frozen weights
  std::optional<int64_t> good_checkpoint_;  // the newest, as far as this process knows
};

}  // namespace lockstep

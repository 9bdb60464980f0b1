#pragma once
// Checks that the weights of all ranks are equal and finite. Otherwise the run ends on every rank,
// with an error that names the checkpoint to resume from.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/checkpoint/run/saving.h"
#include "runtime/train/guard/numeric_fault.h"
#include "runtime/train/run_context.h"
#include "runtime/train/state/weights.h"

namespace lockstep::train {

class WeightsAgreement {
 public:
  // All borrowed.
  WeightsAgreement(const RunContext& context,
                   const RunMemory& memory,
                   const checkpoint::Saving& saving);

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

 private:
  const RunContext& context_;
  const RunMemory& memory_;
  WeightsHash weights_hash_;
  const checkpoint::Saving& saving_;
  std::optional<uint64_t> frozen_;  // hash of the frozen weights
};

}  // namespace lockstep::train

#pragma once
// Finds bits that changed by themselves in a run's state, and names rank, host and tensor.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/train/run_context.h"
#include "runtime/train/step/training_step.h"

namespace lockstep::train {

class StateGuard {
 public:
  // Both are borrowed.
  StateGuard(const RunContext& context, TrainingStep& step);

  // Describes the damage that a step after `done` completed ones has reported. The same text on
  // every rank. Collective: all ranks call it together.
  std::string describe(int64_t done);
  // Checks what is in memory after `done` steps, and describes the damage; empty if there is none.
  // Collective.
  std::string examine(int64_t done);

 private:
  std::string name_ranks(const std::string& mine) const;
  std::string compare_replicas();
  std::vector<uint32_t> gather(std::span<const uint32_t> mine) const;
  std::vector<uint32_t> expected_gradients() const;
  std::string name_odd_ranks(const std::vector<uint32_t>& by_rank,
                             std::optional<uint32_t> right,
                             const std::string& of_tensor) const;

  const RunContext& context_;
  TrainingStep& step_;
};

}  // namespace lockstep::train

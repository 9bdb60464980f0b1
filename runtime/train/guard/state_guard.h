#pragma once
// Finds bits that changed by themselves in what a run keeps, and names rank, host and tensor.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/train/run_parts.h"
#include "runtime/train/step/training_step.h"

namespace lockstep {

class StateGuard {
 public:
  // Both are borrowed.
  StateGuard(const RunParts& parts, TrainingStep& step);

  // What is damaged, where a step after `done` completed ones came out so. The same text on every
  // rank. All ranks together.
  std::string describe(int64_t done);
  // The same for what lies in memory after `done` steps; empty where it is as it should be. All
  // ranks together.
  std::string examine(int64_t done);

 private:
  std::string name_ranks(const std::string& mine) const;
  std::string compare_replicas();
  std::vector<uint32_t> gather(std::span<const uint32_t> mine) const;
  std::vector<uint32_t> expected_gradients() const;
  std::string name_odd_ranks(const std::vector<uint32_t>& by_rank,
                             std::optional<uint32_t> right,
                             const std::string& of_tensor) const;

  const RunParts& parts_;
  TrainingStep& step_;
};

}  // namespace lockstep

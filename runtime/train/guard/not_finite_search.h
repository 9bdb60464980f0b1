#pragma once
// Where numbers that are not finite come from: the step is computed again, and after each op its
// tensors are looked through.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/op_observer.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/training_step.h"

namespace lockstep {

class NotFiniteSearch final : public OpObserver {
 public:
  // Both are borrowed.
  NotFiniteSearch(const RunParts& parts, TrainingStep& step);

  // Of the step that has just been found not finite, and has updated nothing: the first op that
  // reads or writes a number that is not finite, as "rank 1 on host, lane 3: ...", the same text on
  // every rank. All ranks together.
  std::string describe();

  void wrote(const Graph& graph,
             size_t op,
             const LaneContext& lane,
             std::span<std::byte* const> tensors) override;

 private:
  // Of this rank; travels between ranks as it is.
  struct Found {
    int64_t op = INT64_MAX;
    int64_t lane = 0;
    TensorId tensor = kNoTensor;
  };
  bool is_finite(const Tensor& tensor, const std::byte* data);
  std::string text_of(const Found& found) const;
  std::string overflowing_sum();

  const RunParts& parts_;
  TrainingStep& step_;
  std::span<ContentHash> hash_;  // one, of a tensor
  Found first_;
};

}  // namespace lockstep

#pragma once
// Finds the op that produced the first number that is not finite: the step is computed again, and
// the tensors of each op are searched after it has run.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/op_observer.h"
#include "runtime/train/guard/not_finite_kinds.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/training_step.h"

namespace lockstep {

// Where the first number that is not finite comes from, and the remedy.
struct NotFiniteCause {
  std::string text, remedy;
};

class NotFiniteSearch final : public OpObserver {
 public:
  // Both are borrowed.
  NotFiniteSearch(const RunContext& context, TrainingStep& step);

  // Explains the step that has just been found not finite and has updated nothing. Names the first
  // op that makes a number that is not finite from finite ones, or that reads one from the data or
  // the parameters, as "rank 1 on host, lane 3: ...". Infinities of masks (constants, or logarithms
  // of 0) are ignored unless nothing else is found. The same text on every rank. Collective: all
  // ranks call it together.
  NotFiniteCause describe();

  void wrote(const Graph& graph,
             size_t op,
             const LaneContext& lane,
             std::span<std::byte* const> tensors) override;

 private:
  // This rank's finding; sent between ranks as bytes.
  struct Found {
    int64_t op = INT64_MAX;
    int64_t lane = 0;
    TensorId tensor = kNoTensor;
    bool of_mask = false;  // NaN that comes from -infinity only
  };
  NotFiniteKinds kinds_in(const Tensor& tensor, const std::byte* data);
  // The finding of the first op on all ranks; without a tensor if no rank has found any.
  std::pair<size_t, Found> first_of_ranks(const Found& mine);
  NotFiniteCause cause(size_t rank, const Found& found);
  std::string text_of(const Found& found) const;
  std::string overflowing_sum();

  const RunContext& context_;
  TrainingStep& step_;
  std::span<ContentHash> hash_;        // of a tensor; one element
  std::span<std::byte> elements_;      // a part of a tensor
  std::vector<NotFiniteKinds> kinds_;  // by tensor, as the op that wrote it last has left it
  Found first_, first_logarithm_;
};

}  // namespace lockstep

#pragma once
// Where numbers that are not finite come from: the step is computed again, and after each op its
// tensors are looked through.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/op_observer.h"
#include "runtime/train/guard/not_finite_kinds.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/training_step.h"

namespace lockstep {

// Where the first number comes from that is not finite, and what helps against it.
struct NotFiniteCause {
  std::string text, remedy;
};

class NotFiniteSearch final : public OpObserver {
 public:
  // Both are borrowed.
  NotFiniteSearch(const RunParts& parts, TrainingStep& step);

  // Of the step that has just been found not finite, and has updated nothing: the first op that
  // makes a number that is not finite out of others, or that reads one of the data or the parameters,
  // as "rank 1 on host, lane 3: ...". The infinities of a mask are no such number: constants, or
  // logarithms of 0, as long as nothing else is found. The same on every rank. All ranks together.
  NotFiniteCause describe();

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
    bool of_mask = false;  // NaN, of nothing worse than -infinity
  };
  NotFiniteKinds kinds_in(const Tensor& tensor, const std::byte* data);
  // That of the first op of all ranks; without a tensor if none has found any.
  std::pair<size_t, Found> first_of_ranks(const Found& mine);
  NotFiniteCause cause(size_t rank, const Found& found);
  std::string text_of(const Found& found) const;
  std::string overflowing_sum();

  const RunParts& parts_;
  TrainingStep& step_;
  std::span<ContentHash> hash_;        // one, of a tensor
  std::span<std::byte> elements_;      // of a part of a tensor
  std::vector<NotFiniteKinds> kinds_;  // by tensor, as the op that wrote it last has left it
  Found first_, first_logarithm_;
};

}  // namespace lockstep

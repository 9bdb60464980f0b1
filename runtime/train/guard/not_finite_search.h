#pragma once
// Finds the op that produced the first number that is not finite: the pass is computed again, and
// the tensors of each op are searched after it has run. Another repetition looks at what that op
// read.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/batch_samples.h"
#include "runtime/exec/op_observer.h"
#include "runtime/train/guard/not_finite_kinds.h"
#include "runtime/train/guard/op_values.h"
#include "runtime/train/guard/tensor_values.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/training_step.h"

namespace lockstep::train {

// Where the first number that is not finite comes from, and the remedy. No remedy: the machine is
// at fault, and the same run may be tried again.
struct NotFiniteCause {
  std::string text, remedy;
};

class NotFiniteSearch final : public exec::OpObserver {
 public:
  // Both are borrowed.
  NotFiniteSearch(const RunContext& context, TrainingStep& step);

  // Explains the step that has just been found not finite and has updated nothing. Names the first
  // op that makes a number that is not finite from finite ones, or that reads one from the data or
  // the parameters, as "rank 1 on host, lane 3: ...", with the largest numbers that it read and the
  // samples. Infinities of masks (constants, or logarithms of 0) are ignored unless nothing else is
  // found. The same text on every rank. Collective: all ranks call it together.
  NotFiniteCause describe();
  // The same for an evaluation whose loss is not finite. `repeat` runs it again, with the same
  // weights, and reports every op.
  NotFiniteCause describe_evaluation(const std::function<void(exec::OpObserver&)>& repeat);

  void wrote(const graph::Graph& graph,
             size_t op,
             const graph::LaneContext& lane,
             std::span<std::byte* const> tensors) override;

 private:
  // This rank's finding; sent between ranks as bytes.
  struct Found {
    int64_t op = INT64_MAX;
    int64_t first_sample = 0;  // LaneContext::first_sample
    int64_t step = 0, lane = 0;
    TensorId tensor = kNoTensor;
    bool of_mask = false;  // NaN that comes from -infinity only
  };
  // What was computed: a training step or an evaluation.
  struct Pass {
    bool trains;
    const graph::Graph& graph;
    const data::Dataset& dataset;
    std::function<void(exec::OpObserver&)> repeat;
  };
  // Repeats the pass and returns the first op's finding on all ranks with the rank that has it;
  // without a tensor if no rank has any.
  std::pair<size_t, Found> search(const Pass& pass);
  std::pair<size_t, Found> first_of_ranks(const Found& mine);
  // Repeats the pass to look at that op.
  NotFiniteCause cause(const Pass& pass, size_t rank, const Found& found);
  NotFiniteCause own_cause(const Pass& pass, const Found& found, const OpValues& values) const;
  struct DataCause {
    std::string text, what;
  };
  DataCause data_cause(const Pass& pass, const Found& found, const OpValues& values) const;
  std::vector<data::SampleKey> samples_of(const Pass& pass, const Found& found) const;
  NotFiniteCause cause_of_sum();
  std::string overflowing_sum();

  const RunContext& context_;
  TrainingStep& step_;
  TensorValues values_;
  std::vector<NotFiniteKinds> kinds_;  // by tensor, as the op that wrote it last has left it
  Found first_, first_logarithm_;
  int64_t step_read_ = 0;  // LaneContext::step of the lane that was read last
};

}  // namespace lockstep::train

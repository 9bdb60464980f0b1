#pragma once
// What one op reads and writes, looked at while a pass is repeated.

#include <cstdint>
#include <vector>

#include "runtime/exec/op_observer.h"
#include "runtime/train/guard/tensor_values.h"

namespace lockstep::train {

// An op may write over its inputs, so each one is measured when the op that produces it has run.
class OpValues final : public exec::OpObserver {
 public:
  // Looks at op number `op` in the lane whose first sample has this number, the first time that it
  // runs. `values` is borrowed. `rows`: samples of a lane.
  OpValues(TensorValues& values, int64_t op, int64_t first_sample, int64_t rows)
      : values_(values), op_(op), first_sample_(first_sample), rows_(rows) {}

  struct Input {
    TensorId tensor;
    float largest;  // the largest finite magnitude
  };
  // In the order of the op's inputs; only those with numbers other than 0.
  std::vector<Input> inputs() const;
  // The largest magnitude among the parameters that the op reads.
  float largest_parameter() const { return largest_parameter_; }
  // The samples of the lane for which the op's output `tensor` is not finite. Empty if the tensor
  // has no row for each sample.
  std::vector<int64_t> rows_not_finite(TensorId tensor) const;

  void wrote(const graph::Graph& graph,
             size_t op,
             const graph::LaneContext& lane,
             std::span<std::byte* const> tensors) override;

 private:
  void begin(const graph::Graph& graph);

  TensorValues& values_;
  const int64_t op_, first_sample_, rows_;
  bool done_ = false;
  struct Wanted {
    Input input;
    int64_t writer;  // the op after which the tensor is measured
  };
  std::vector<Wanted> wanted_;
  float largest_parameter_ = 0;
  struct Output {
    TensorId tensor;
    std::vector<int64_t> rows;
  };
  std::vector<Output> outputs_;
};

}  // namespace lockstep::train

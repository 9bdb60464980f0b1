#pragma once
// The residual stream of a pre-norm transformer. The next norm adds a branch's output to the
// stream, which saves an op for the addition.

#include <string>
#include <utility>

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/add.h"

namespace lockstep::models {

class ResidualStream {
 public:
  explicit ResidualStream(graph::GraphBuilder& builder) : builder_(builder) {}

  void begin(TensorId x) { stream_ = x; }
  // `branch` has the stream's shape; the next norm adds it.
  void add(TensorId branch) { pending_ = branch; }

  // Adds the pending branch and returns the norm of the sum. norm(x, delta) returns {x + delta, the
  // norm of that sum}; delta may be kNoTensor.
  template <typename Norm>
  TensorId norm(Norm&& norm) {
    const auto [sum, normed] = norm(stream_, pending_);
    stream_ = sum;
    pending_ = kNoTensor;
    return normed;
  }

  // Called before each block. If blocks are recomputed in the backward pass, the pending branch is
  // added here, so that the block has one input, the only tensor kept of it. Otherwise the block's
  // first norm adds it.
  void begin_block(const std::string& name) {
    if (builder_.options().recompute && pending_ != kNoTensor) {
      stream_ = ops::add(builder_, name + "input", stream_, pending_);
      pending_ = kNoTensor;
    }
    builder_.begin_block();
  }
  void end_block() { builder_.end_block(); }

 private:
  graph::GraphBuilder& builder_;
  TensorId stream_ = kNoTensor;   // (B, T, C)
  TensorId pending_ = kNoTensor;  // (B, T, C) branch not yet added to it
};

}  // namespace lockstep::models

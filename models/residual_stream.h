#pragma once
// The stream of a transformer with norms before its layers. What a branch computes is added to the
// stream by the norm that comes next, so that no op of its own adds it.

#include <string>
#include <utility>

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/add.h"

namespace lockstep {

class ResidualStream {
 public:
  explicit ResidualStream(GraphBuilder& builder) : builder_(builder) {}

  void begin(TensorId x) { stream_ = x; }
  // A branch of the stream's shape; the next norm adds it.
  void add(TensorId branch) { pending_ = branch; }

  // Adds the pending branch and returns the norm of the sum. norm(x, delta) -> {x + delta, its
  // norm}, delta may be kNoTensor.
  template <typename Norm>
  TensorId norm(Norm&& norm) {
    const auto [sum, normed] = norm(stream_, pending_);
    stream_ = sum;
    pending_ = kNoTensor;
    return normed;
  }

  // Before a block. Where blocks are computed again, each begins with one tensor, all that is kept
  // of it; elsewhere its first norm adds the pending branch.
  void begin_block(const std::string& name) {
    if (builder_.options().recompute && pending_ != kNoTensor) {
      stream_ = ops::add(builder_, name + "input", stream_, pending_);
      pending_ = kNoTensor;
    }
    builder_.begin_block();
  }
  void end_block() { builder_.end_block(); }

 private:
  GraphBuilder& builder_;
  TensorId stream_ = kNoTensor;   // (B, T, C)
  TensorId pending_ = kNoTensor;  // (B, T, C) branch not yet added to it
};

}  // namespace lockstep

#pragma once
// Blocks whose activations the backward pass computes again instead of keeping them: memory for
// time. The graph's backward pass holds, before the gradients of a block, copies of the forward ops
// of that block; the gradients then read the copies. What the block read from outside stays.

#include <cstddef>
#include <map>

#include "runtime/graph/autodiff.h"

namespace lockstep {

class Recomputation {
 public:
  explicit Recomputation(GradientBuilder& builder) : builder_(builder) {}

  // Differentiation, which walks the forward ops backwards, has come to op `index`. At the last op
  // of a block the copies are appended. Returns the op whose tensors its gradient shall use: `op`
  // itself, or within a block the copy, valid until the next call.
  const Op& enter(size_t index, const Op& op);

  // Removes the copies that no gradient reads.
  void drop_unused();

 private:
  void append_copies(const RecomputedBlock& block);
  Op renamed(Op op) const;

  GradientBuilder& builder_;
  std::map<TensorId, TensorId> copies_;  // of the block under way
  Op current_{};
};

}  // namespace lockstep

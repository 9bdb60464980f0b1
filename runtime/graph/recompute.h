#pragma once
// Activation recomputation (gradient checkpointing): the backward pass computes the activations of
// a block again instead of keeping them, which trades time for memory. Before the gradients of a
// block, the backward pass holds copies of the block's forward ops, and the gradients read the
// copies' outputs. Tensors that the block reads from outside are kept.

#include <cstddef>
#include <map>

#include "runtime/graph/autodiff.h"

namespace lockstep::graph {

class Recomputation {
 public:
  explicit Recomputation(GradientBuilder& builder) : builder_(builder) {}

  // Called when differentiation, which visits the forward ops backwards, reaches op `index`. At the
  // last op of a block, appends the copies. Returns the op whose tensors the gradient must use:
  // `op` itself, or its copy within a block, valid until the next call.
  const Op& enter(size_t index, const Op& op);

  // Removes the copies that no gradient reads.
  void drop_unused();

 private:
  void append_copies(const RecomputedBlock& block);
  Op renamed(Op op) const;

  GradientBuilder& builder_;
  std::map<TensorId, TensorId> copies_;  // of the current block: copy by original
  Op current_{};
};

}  // namespace lockstep::graph

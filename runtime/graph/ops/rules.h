#pragma once
// Pieces that several ops' rules share.

#include "runtime/graph/autodiff.h"

namespace lockstep {

// Appends d_x = d_y * activation'(saved) and returns d_x; returns d_y itself for Activation::kNone.
TensorId append_activation_backward(GradientBuilder& builder,
                                    const std::string& name,
                                    TensorId d_y,
                                    TensorId saved,
                                    Activation activation);

// The shape of a pool's output; that a window does not fit is a broken invariant.
Shape pool_output(const std::string& name, const Shape& x, const PoolAttributes& attributes);

// One for each tap of each window.
int64_t pool_flops(const Graph& graph, const Op& op);

// Of each element.
inline constexpr int kActivationBackwardFlops = 12;
inline constexpr int kBatchNormFlops = 8;

// Flops of an op that does `per_element` operations on each element of its first input.
template <int kPerElement>
int64_t elementwise_flops(const Graph& graph, const Op& op) {
  return kPerElement * graph.shape(op.inputs[0]).elements();
}

}  // namespace lockstep

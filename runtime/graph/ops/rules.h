#pragma once
// Pieces that several ops' rules share.

#include <string>

#include "runtime/base/error.h"
#include "runtime/graph/activation.h"
#include "runtime/graph/autodiff.h"

namespace lockstep {

// Appends d_x = d_y * activation'(saved) and returns d_x; returns d_y itself for Activation::kNone.
TensorId append_activation_backward(GradientBuilder& builder,
                                    const std::string& name,
                                    TensorId d_y,
                                    TensorId saved,
                                    Activation activation);

// The gradient of a parameter that no other op may use, so that it is always overwritten; kNoTensor
// for kNoTensor. Of a frozen one, and of a constant in its place, an activation, which nobody reads: a
// row that the kernels of norms find on their way.
inline TensorId unshared_gradient(GradientBuilder& builder, const Op& op, TensorId parameter) {
  if (parameter != kNoTensor && builder.graph()[parameter].frozen)
    return builder.new_gradient(parameter);
  if (parameter != kNoTensor && builder.graph()[parameter].role == Role::kConstant)
    return builder.new_statistics("d_" + builder.graph()[parameter].name,
                                  builder.graph().shape(parameter));
  const auto [gradient, accumulate] = builder.parameter_gradient(parameter);
  LOCKSTEP_CHECK(!accumulate, "{}: the parameters of a norm cannot be shared ", op.name);
  return gradient;
}

// Whether ops that only move elements take the type.
inline bool is_movable(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16 || type == DType::kI32;
}

// Of each element.
inline constexpr int kActivationBackwardFlops = 12;
inline constexpr int kBatchNormFlops = 8;

// Flops of an op that does `per_element` operations on each element of its first input.
template <int kPerElement>
int64_t elementwise_flops(const Graph& graph, const Op& op) {
  return kPerElement * graph.shape(op.inputs[0]).elements();
}

}  // namespace lockstep

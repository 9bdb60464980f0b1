#pragma once
// Pieces that several ops' rules share.

#include <string>
#include <utility>

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

// Where kernels write the gradient of a weight, in f32, and whether they add to it: of a parameter its own
// gradient, of a weight that is computed a new tensor; kNoTensor if nothing that learns lies behind it.
std::pair<TensorId, bool> weight_gradient(GradientBuilder& builder, TensorId weight);

// What a backward rule returns of a weight once the op is appended that writes `gradient`: of a computed one
// the gradient in the weight's type, of a parameter kNoTensor.
TensorId passed_on(GradientBuilder& builder,
                   const std::string& name,
                   TensorId weight,
                   TensorId gradient);

// The gradient of a parameter that no other op may use, so that it is always overwritten; kNoTensor
// for kNoTensor. Of a frozen one, and of a tensor in its place, an activation: a row that the kernels of
// norms find on their way.
inline TensorId unshared_gradient(GradientBuilder& builder, const Op& op, TensorId parameter) {
  if (parameter != kNoTensor && builder.graph()[parameter].frozen)
    return builder.new_gradient(parameter);
  if (parameter != kNoTensor && builder.graph()[parameter].role != Role::kParameter)
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

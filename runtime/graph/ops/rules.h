#pragma once
// Functions shared by the backward rules of several ops.

#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/graph/activation.h"
#include "runtime/graph/autodiff.h"

namespace lockstep::graph {

// Appends d_x = d_y * activation'(saved) and returns d_x; returns d_y itself for Activation::kNone.
TensorId append_activation_backward(GradientBuilder& builder,
                                    const std::string& name,
                                    TensorId d_y,
                                    TensorId saved,
                                    Activation activation);

// The tensor into which kernels write the gradient of a weight, in f32, and whether they add to it.
// For a parameter, its own gradient; for a computed weight, a new tensor; kNoTensor if nothing
// trained lies below.
std::pair<TensorId, bool> weight_gradient(GradientBuilder& builder, TensorId weight);

// The gradient that a backward rule returns for a weight, once the op that writes `gradient` is
// appended. For a computed weight, the gradient in the weight's type; for a parameter, kNoTensor.
TensorId passed_on(GradientBuilder& builder,
                   const std::string& name,
                   TensorId weight,
                   TensorId gradient);

// The gradient of a parameter that no other op may use, so that it is always overwritten; kNoTensor
// for kNoTensor. If the parameter is frozen, or the op has another tensor in its place, returns a
// new activation, because the kernels of norms always write this gradient.
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

// The gradients of the op's inputs if only the first one has one: appends the op that computes it,
// of this kind, with the op's name and attributes.
OpInputs first_input_gradient(GradientBuilder& builder, const Op& op, OpKind kind, OpInputs inputs);

// Whether ops that only move elements support the type.
inline bool is_movable(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16 || type == DType::kI32;
}

// Per element.
inline constexpr int kActivationBackwardFlops = 12;
inline constexpr int kBatchNormFlops = 8;

// Flops of the product of each row of a tensor with all elements of a weight.
inline int64_t product_flops(const Graph& graph, TensorId rows, TensorId weight) {
  return 2 * graph.shape(rows).rows() * graph.shape(weight).elements();
}

// Flops of an op with `kPerElement` operations on each element of its first input.
template <int kPerElement>
int64_t elementwise_flops(const Graph& graph, const Op& op) {
  return kPerElement * graph.shape(op.inputs[InputName::at(0)]).elements();
}

}  // namespace lockstep::graph

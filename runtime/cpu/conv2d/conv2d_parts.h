#pragma once
// The parts of conv2d.h that have files of their own.

#include <cstdint>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/matmul/linear.h"

namespace lockstep::cpu {

// A 1x1 convolution as a linear layer of the pixels.
inline graph::LinearShape linear_shape(const graph::Conv2dShape& s) {
  return {s.out_pixels(), s.channels, s.outputs};
}
// A convolution's outputs as those of a linear layer, for the gradient of the bias.
template <typename T>
graph::LinearBackward<T> linear_backward(const graph::Conv2dBackward<T>& op) {
  return {.shape = linear_shape(op.shape),
          .stride = op.shape.outputs,
          .padded_outputs = op.shape.outputs,
          .accumulate_weight = op.accumulate_weight,
          .accumulate_bias = op.accumulate_bias,
          .input_activation = Activation::kNone,
          .d_y = op.d_y,
          .x = op.x,
          .weight = op.weight,
          .d_x = op.d_x,
          .d_weight = op.d_weight,
          .d_bias = op.d_bias,
          .workspace = op.workspace};
}

// The scratch memory of conv2d_backward_weight().
template <typename T>
int64_t conv2d_weight_workspace_bytes(const graph::Conv2dShape& shape, int threads);

// Depthwise convolutions. Their sums have the same order as those of other convolutions.
inline bool is_depthwise(const graph::Conv2dShape& shape) {
  return shape.groups > 1 && shape.groups == shape.channels && shape.groups == shape.outputs;
}
int64_t depthwise_workspace_bytes(const graph::Conv2dShape& shape);
template <typename T>
void depthwise_forward(const Conv2dProduct<T>& op, void* workspace);
template <typename T>
void depthwise_backward_input(const graph::Conv2dBackward<T>& op);
template <typename T>
void depthwise_backward_weight(const graph::Conv2dBackward<T>& op);

}  // namespace lockstep::cpu

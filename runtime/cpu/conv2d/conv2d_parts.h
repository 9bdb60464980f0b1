#pragma once
// What conv2d.h is made of: parts that are files of their own.

#include <cstdint>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/matmul/linear.h"

namespace lockstep::cpu {

// Of a convolution that is a linear layer of the pixels.
inline LinearShape linear_shape(const Conv2dShape& s) {
  return {s.out_pixels(), s.channels, s.outputs};
}
// And the gradient of any convolution's bias.
inline LinearBackward<float> linear_backward(const Conv2dBackward<float>& op) {
  return {.shape = linear_shape(op.shape),
          .stride = op.shape.outputs,
          .accumulate_weight = op.accumulate_weight,
          .accumulate_bias = op.accumulate_bias,
          .input_activation = Activation::kNone,
          .d_y = op.d_y,
          .x = op.x,
          .weight = op.weight,
          .saved = nullptr,
          .d_x = op.d_x,
          .d_weight = op.d_weight,
          .d_bias = op.d_bias,
          .workspace = op.workspace};
}

// The scratch memory of conv2d_backward_weight().
int64_t conv2d_weight_workspace_bytes(const Conv2dShape& shape, int threads);

// Convolutions of every channel alone. The order of the sums is the same as elsewhere.
inline bool is_depthwise(const Conv2dShape& shape) {
  return shape.groups > 1 && shape.groups == shape.channels && shape.groups == shape.outputs;
}
int64_t depthwise_workspace_bytes(const Conv2dShape& shape);
void depthwise_forward(const Conv2dProduct& op, void* workspace);
void depthwise_backward_input(const Conv2dBackward<float>& op);
void depthwise_backward_weight(const Conv2dBackward<float>& op);

}  // namespace lockstep::cpu

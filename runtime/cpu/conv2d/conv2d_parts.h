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
inline LinearBackward<float> linear_backward_weight_of(const Conv2dShape& s,
                                                       const float* d_y,
                                                       const float* x,
                                                       float* d_w,
                                                       bool accumulate,
                                                       void* workspace) {
  LinearBackward<float> op{};
  op.shape = linear_shape(s);
  op.accumulate_weight = accumulate;
  op.d_y = d_y;
  op.x = x;
  op.d_weight = d_w;
  op.workspace = static_cast<std::byte*>(workspace);
  return op;
}
inline LinearBackward<float> linear_backward_input_of(
    const Conv2dShape& s, const float* d_y, const float* w, float* d_x, void* workspace) {
  LinearBackward<float> op{};
  op.shape = linear_shape(s);
  op.d_y = d_y;
  op.weight = w;
  op.d_x = d_x;
  op.workspace = static_cast<std::byte*>(workspace);
  return op;
}

// The scratch memory of conv2d_backward_weight().
int64_t conv2d_weight_workspace_bytes(const Conv2dShape& shape, int threads);

// Convolutions of every channel alone. The order of the sums is the same as elsewhere.
inline bool is_depthwise(const Conv2dShape& shape) {
  return shape.groups > 1 && shape.groups == shape.channels && shape.groups == shape.outputs;
}
int64_t depthwise_workspace_bytes(const Conv2dShape& shape);
void depthwise_forward(const Conv2dForward& op, void* workspace);
void depthwise_backward_input(
    const Conv2dShape& shape, const float* d_y, const float* w, float* d_x, void* workspace);
void depthwise_backward_weight(const Conv2dShape& shape,
                               const float* d_y,
                               const float* x,
                               float* d_w,
                               bool accumulate,
                               void* workspace);

}  // namespace lockstep::cpu

#pragma once
// Which convolutions, also transposed ones, the GPU supports, and their workspaces.

#include <algorithm>

#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/plan/column_sum.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/conv_transpose2d.h"

namespace lockstep::cuda {

// ---- The native kernels: conv2d/conv2d.h ----

inline constexpr int kConv2dTile = 64;   // rows and columns per block
inline constexpr int kConv2dDepth = 16;  // products that it loads at a time

// Sums of products as a matrix (rows, columns) for each group; the products may be cut into slices.
struct Conv2dExtents {
  int64_t rows, columns, products, groups;
  int64_t slice_products, slices;
};

inline Conv2dExtents unsliced(int64_t rows, int64_t columns, int64_t products, int64_t groups) {
  return {rows, columns, products, groups, products, 1};
}

// The slices of the gradient of w.
inline Conv2dExtents weight_extents(const graph::Conv2dShape& s) {
  constexpr int64_t kMaxSlices = 64;
  constexpr int64_t kSliceBlocks = 512;  // tiles times slices that are enough to fill a GPU
  constexpr int64_t kMinProducts = 256;
  Conv2dExtents e = unsliced(s.group_outputs(), s.patch(), s.out_pixels(), s.groups);
  const int64_t tiles = ((e.rows + kConv2dTile - 1) / kConv2dTile) *
                        ((e.columns + kConv2dTile - 1) / kConv2dTile) * e.groups;
  const int64_t target_slices = std::clamp<int64_t>(kSliceBlocks / tiles, 1, kMaxSlices);
  const int64_t products = std::max(kMinProducts, (e.products + target_slices - 1) / target_slices);
  e.slice_products = (products + kConv2dDepth - 1) / kConv2dDepth * kConv2dDepth;
  e.slices = (e.products + e.slice_products - 1) / e.slice_products;
  return e;
}

// Whether the numbers of pixels, products and blocks fit into 31 bits.
inline bool conv2d_supports(const graph::Conv2dShape& s) {
  constexpr int64_t kMax = (int64_t{1} << 31) - kConv2dTile;
  const auto fits = [](int64_t rows, int64_t matrices) {
    return (rows + kConv2dTile - 1) / kConv2dTile * matrices <= kMaxBlocksAcross;
  };
  return s.pixels() < kMax && s.out_pixels() < kMax && s.outputs * s.patch() < kMax &&
         fits(s.out_pixels(), s.groups) && fits(s.pixels(), s.groups) &&
         fits(s.group_outputs(), weight_extents(s).slices * s.groups) &&
         s.kernel_h * s.kernel_w * s.group_outputs() < kMax;
}

// The workspace of conv2d_backward_weight().
inline size_t conv2d_workspace_bytes(const graph::Conv2dShape& shape) {
  const auto elements = static_cast<size_t>(shape.outputs * shape.patch());
  return static_cast<size_t>(weight_extents(shape).slices) * elements * sizeof(float);
}

// ---- Both passes of both ops ----

// Of everything except gradients of parameters.
inline DType conv2d_dtype(const graph::OpCall& op) {
  return op.input_dtype(graph::InputName::at(0));
}

inline bool conv2d_supports_op(const graph::OpCall& op) {
  return conv2d_supports(conv2d_shape(op));
}

// ---- What cuDNN is asked ----

inline CudnnConv2dKey cudnn_conv2d_key(const graph::OpCall& op, Conv2dPass pass, bool tf32) {
  return {conv2d_shape(op), conv2d_dtype(op), tf32, pass};
}
// The forward pass with the bias and ReLU, if any, fused.
inline CudnnConv2dKey cudnn_conv2d_epilogue_key(const graph::OpCall& op, bool tf32) {
  CudnnConv2dKey key = cudnn_conv2d_key(op, Conv2dPass::kForward, tf32);
  key.bias = op.has_input(graph::Conv2dIn::kBias);
  key.relu = graph::Conv2dForward<std::byte>{op}.activation == Activation::kRelu;
  return key;
}
// Stores the gradient of w directly as floats; for float images, it is float anyway.
inline CudnnConv2dKey cudnn_conv2d_wide_key(const graph::OpCall& op, bool tf32) {
  CudnnConv2dKey key = cudnn_conv2d_key(op, Conv2dPass::kBackwardWeight, tf32);
  key.wide = key.dtype != DType::kF32;
  return key;
}

// The planned workspace of cuDNN does not depend on TF32.
template <Conv2dPass kPass>
size_t cudnn_conv2d_workspace(const graph::OpCall& op) {
  return cudnn_conv2d_workspace_bytes({conv2d_shape(op), conv2d_dtype(op), false, kPass});
}

// ---- The gradient of the weights of conv2d, then that of the bias ----

// Offset of the gradient of w in the images' type, as cuDNN stores it.
inline size_t narrow_gradient_offset(const graph::OpCall& op) {
  return aligned_bytes(cudnn_conv2d_workspace<Conv2dPass::kBackwardWeight>(op));
}
inline size_t conv2d_widened_workspace(const graph::OpCall& op) {
  const graph::Conv2dShape shape = conv2d_shape(op);
  return narrow_gradient_offset(op) +
         static_cast<size_t>(shape.outputs * shape.patch()) * size_of(conv2d_dtype(op));
}
inline size_t native_conv2d_weight_workspace(const graph::OpCall& op) {
  return conv2d_workspace_bytes(conv2d_shape(op));
}
inline size_t conv2d_bias_workspace(const graph::OpCall& op) {
  const graph::Conv2dShape shape = conv2d_shape(op);
  return op.has_output(graph::Conv2dBackwardOut::kDBias)
             ? column_sum_workspace_bytes(shape.out_pixels(), shape.outputs)
             : 0;
}

// Enough for any halves that may be chosen.
inline size_t conv2d_backward_workspace(const graph::OpCall& op) {
  const size_t widened = conv2d_shape(op).is_linear() ? 0 : conv2d_widened_workspace(op);
  return std::max({cudnn_conv2d_workspace<Conv2dPass::kBackwardInput>(op),
                   widened,
                   native_conv2d_weight_workspace(op),
                   conv2d_bias_workspace(op)});
}

// ---- The gradient of the weights of conv_transpose2d, then that of the bias ----

inline size_t conv_transpose2d_bias_workspace(const graph::OpCall& op) {
  const graph::Conv2dShape shape = conv2d_shape(op);
  return op.has_output(graph::Conv2dBackwardOut::kDBias)
             ? column_sum_workspace_bytes(shape.pixels(), shape.channels)
             : 0;
}
inline size_t conv_transpose2d_backward_workspace(const graph::OpCall& op) {
  return std::max({cudnn_conv2d_workspace<Conv2dPass::kForward>(op),
                   cudnn_conv2d_workspace<Conv2dPass::kBackwardWeight>(op),
                   native_conv2d_weight_workspace(op),
                   conv_transpose2d_bias_workspace(op)});
}

}  // namespace lockstep::cuda

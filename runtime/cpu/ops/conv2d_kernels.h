#pragma once
// The kernels of convolutions, for each way to multiply: with fused multiply-adds, or as in
// bf16x3.h, floats or bfloat16.

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3.h"
#include "runtime/cpu/conv2d/conv2d_tiles.h"
#include "runtime/cpu/matmul/tile_units.h"

namespace lockstep::cpu {

// The kernels for tensors that store T.
template <typename T>
struct Conv2dKernels {
  using Stored = T;
  decltype(&conv2d_workspace_bytes<T>) workspace_bytes, forward_workspace_bytes;
  decltype(&conv2d_forward<T>) forward;
  decltype(&conv2d_backward_input<T>) backward_input;
  decltype(&conv2d_backward_weight<T>) backward_weight;
};
template <typename T>
inline constexpr Conv2dKernels<T> kConv2d = {conv2d_workspace_bytes<T>,
                                             conv2d_forward_workspace_bytes<T>,
                                             conv2d_forward<T>,
                                             conv2d_backward_input<T>,
                                             conv2d_backward_weight<T>};
inline constexpr Conv2dKernels<float> kConv2dBf16x3 = {bf16x3::conv2d_workspace_bytes,
                                                       bf16x3::conv2d_forward_workspace_bytes,
                                                       bf16x3::conv2d_forward,
                                                       bf16x3::conv2d_backward_input,
                                                       bf16x3::conv2d_backward_weight};
inline constexpr Conv2dKernels<BFloat16> kConv2dTiles = {tiles::conv2d_workspace_bytes,
                                                         tiles::conv2d_forward_workspace_bytes,
                                                         tiles::conv2d_forward,
                                                         tiles::conv2d_backward_input,
                                                         tiles::conv2d_backward_weight};

}  // namespace lockstep::cpu

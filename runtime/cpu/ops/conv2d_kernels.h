#pragma once
// The kernels of convolutions, for each way to multiply floats: with fused multiply-adds, or as in
// bf16x3.h.

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3.h"

namespace lockstep::cpu {

struct Conv2dKernels {
  decltype(&conv2d_workspace_bytes) workspace_bytes, forward_workspace_bytes;
  decltype(&conv2d_forward) forward;
  decltype(&conv2d_backward_input) backward_input;
  decltype(&conv2d_backward_weight) backward_weight;
};
inline constexpr Conv2dKernels kConv2d = {conv2d_workspace_bytes,
                                          conv2d_forward_workspace_bytes,
                                          conv2d_forward,
                                          conv2d_backward_input,
                                          conv2d_backward_weight};
inline constexpr Conv2dKernels kConv2dBf16x3 = {bf16x3::conv2d_workspace_bytes,
                                                bf16x3::conv2d_forward_workspace_bytes,
                                                bf16x3::conv2d_forward,
                                                bf16x3::conv2d_backward_input,
                                                bf16x3::conv2d_backward_weight};

}  // namespace lockstep::cpu

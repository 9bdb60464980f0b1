#pragma once
// The kernels of linear layers, for each way to multiply floats: with fused multiply-adds, or as in
// bf16x3.h.

#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/matmul/linear_bf16x3.h"

namespace lockstep::cpu {

struct LinearKernels {
  decltype(&linear_workspace_bytes) workspace_bytes;
  decltype(&linear_forward<float>) forward;
  decltype(&linear_backward_input) backward_input;
  decltype(&linear_backward_weight) backward_weight;
};
inline constexpr LinearKernels kLinear = {
    linear_workspace_bytes, linear_forward<float>, linear_backward_input, linear_backward_weight};
inline constexpr LinearKernels kLinearBf16x3 = {bf16x3::linear_workspace_bytes,
                                                bf16x3::linear_forward,
                                                bf16x3::linear_backward_input,
                                                bf16x3::linear_backward_weight};

}  // namespace lockstep::cpu

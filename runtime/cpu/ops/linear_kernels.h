#pragma once
// The kernels of linear layers, for each way to multiply: with fused multiply-adds, or as in
// bf16x3.h.

#include <algorithm>

#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/matmul/linear_bf16x3.h"
#include "runtime/cpu/matmul/linear_tiles.h"
#include "runtime/cpu/matmul/tile_units.h"

namespace lockstep::cpu {

// The kernels for floats.
struct LinearKernels {
  decltype(&linear_workspace_bytes<float>) workspace_bytes;
  decltype(&linear_forward<float>) forward;
  decltype(&linear_backward_weight) backward_weight;
};
inline constexpr LinearKernels kLinear = {
    linear_workspace_bytes<float>, linear_forward<float>, linear_backward_weight};
inline constexpr LinearKernels kLinearBf16x3 = {
    bf16x3::linear_workspace_bytes, bf16x3::linear_forward, bf16x3::linear_backward_weight};

// The kernels for bfloat16.
struct HalfLinearKernels {
  int64_t (*workspace_bytes)(const graph::LinearShape& shape, int threads);
  int64_t (*loss_workspace_bytes)(const graph::LinearShape& shape, int threads);  // y in floats
  decltype(&linear_forward<BFloat16>) forward;
  decltype(&linear_forward<float>) forward_to_floats;
  decltype(&gemm) multiply;
};

inline int64_t half_linear_workspace_bytes(const graph::LinearShape& shape, int threads) {
  const auto [rows, inputs, outputs] = shape;
  return std::max(linear_workspace_bytes<BFloat16>(shape, threads),
                  linear_workspace_bytes<BFloat16>({rows, outputs, inputs}, threads));
}
inline int64_t half_loss_workspace_bytes(const graph::LinearShape& shape, int threads) {
  return std::max(linear_workspace_bytes<float>(shape, threads),
                  half_linear_workspace_bytes(shape, threads));
}
inline int64_t tile_linear_workspace_bytes(const graph::LinearShape& shape, int threads) {
  const auto [rows, inputs, outputs] = shape;
  return std::max({tiles::linear_workspace_bytes(shape, threads),
                   tiles::linear_workspace_bytes({rows, outputs, inputs}, threads),
                   tiles::gemm_workspace_bytes(outputs, inputs, rows, threads)});
}

inline int64_t tile_loss_workspace_bytes(const graph::LinearShape& shape, int threads) {
  const auto [rows, inputs, outputs] = shape;
  return std::max({tiles::gemm_workspace_bytes(rows, outputs, inputs, threads),
                   tiles::linear_workspace_bytes({rows, outputs, inputs}, threads),
                   tiles::gemm_workspace_bytes(outputs, inputs, rows, threads)});
}

inline constexpr HalfLinearKernels kHalfLinear = {half_linear_workspace_bytes,
                                                  half_loss_workspace_bytes,
                                                  linear_forward<BFloat16>,
                                                  linear_forward<float>,
                                                  gemm};
inline constexpr HalfLinearKernels kTileLinear = {tile_linear_workspace_bytes,
                                                  tile_loss_workspace_bytes,
                                                  tiles::linear_forward<BFloat16>,
                                                  tiles::linear_forward<float>,
                                                  tiles::gemm};

}  // namespace lockstep::cpu

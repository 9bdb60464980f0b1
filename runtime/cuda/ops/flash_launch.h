#pragma once
// How the passes of flash_tiles.h are launched, and what they share beside tiles and masks.

#include <type_traits>

#include "runtime/cuda/ops/flash_masks.h"
#include "runtime/cuda/plan/attention.h"

namespace lockstep::cuda::flash {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ Extent extent_of(const graph::AttentionShape& shape, bool vectors) {
  return {static_cast<int>(shape.time), static_cast<int>(shape.head_size), vectors};
}

// Reduces a value of a row over the four lanes that have its columns; all get the same bits.
template <typename Operation>
__device__ __forceinline__ float over_columns(float value) {
  value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, 1));
  return Operation::apply(value, __shfl_xor_sync(kAllLanes, value, 2));
}

// Calls f with the head size that the tiles have, as a constant.
template <typename F>
void with_width(int64_t head_size, F f) {
  LOCKSTEP_REQUIRE(head_size <= kMaxHeadSize);
  if (head_size <= 64) return f(std::integral_constant<int, 64>());
  if (head_size <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, kMaxHeadSize>());
}

template <typename G, typename Arguments>
void launch_pass(const graph::AttentionShape& shape,
                 Stream stream,
                 void (*kernel)(Arguments),
                 const Arguments& arguments) {
  const int64_t heads = shape.batch * (G::kOfKeys ? shape.kv_heads : shape.heads);
  const dim3 grid = tall_grid(blocks_for(shape.time, G::kRows), heads);
  launch({grid, G::kThreads, stream, G::kSharedBytes}, kernel, arguments);
}

}  // namespace lockstep::cuda::flash

#pragma once
// The workspace of ops/token_sort.h.

#include <cstddef>

#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

// What is set aside for CUB, whose own answer depends on the GPU: a second copy of keys and values
// and some thousand counters a tile, with room to spare.
inline size_t radix_sort_bytes(int64_t n) {
  return static_cast<size_t>(n) * 16 + (size_t{1} << 20);
}

// For n ids; they begin with n numbers.
inline size_t sort_tokens_workspace_bytes(int64_t n) {
  return aligned_bytes(static_cast<size_t>(n) * sizeof(int32_t)) + radix_sort_bytes(n);
}

}  // namespace lockstep::cuda

#pragma once
// The workspace of ops/token_sort.h.

#include <cstddef>

#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

// What is reserved for CUB, whose actual need depends on the GPU: a second copy of keys and values
// and some thousand counters per tile, with a margin.
inline size_t radix_sort_bytes(int64_t n) {
  return static_cast<size_t>(n) * 16 + (size_t{1} << 20);
}

// The workspace for n ids; it begins with n integers.
inline size_t sort_tokens_workspace_bytes(int64_t n) {
  return aligned_bytes(static_cast<size_t>(n) * sizeof(int32_t)) + radix_sort_bytes(n);
}

}  // namespace lockstep::cuda

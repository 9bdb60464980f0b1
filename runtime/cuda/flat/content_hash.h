#pragma once
// The hash of weights (runtime/base/content_hash.h) on a GPU.

#include <cstddef>
#include <cstdint>

#include "runtime/base/content_hash.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// *out = the hash over n elements, as floats, the first of which has index `first_index` in the
// whole array. T is float, BFloat16 or Float16.
template <typename T>
void content_hash(const T* x,  // (n)
                  int64_t n,
                  uint64_t first_index,
                  ContentHash* workspace,  // kHashBlocks, on the device
                  ContentHash* out,        // on the device, or pinned on the host
                  Stream stream);
inline constexpr int kHashBlocks = 1024;

}  // namespace lockstep::cuda

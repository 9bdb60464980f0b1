#pragma once
// The hash of weights (runtime/base/content_hash.h), vectorised and multi-threaded.

#include <cstdint>

#include "runtime/base/content_hash.h"

namespace lockstep::cpu {

// Returns the hash over n numbers, as floats, the first of which has index `first_index` in the
// whole array. T: float or BFloat16.
template <typename T>
ContentHash content_hash(const T* x, int64_t n, uint64_t first_index);

}  // namespace lockstep::cpu

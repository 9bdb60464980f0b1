#pragma once
// The hash of weights (runtime/base/content_hash.h), fast.

#include <cstdint>

#include "runtime/base/content_hash.h"

namespace lockstep::cpu {

// The hash over n floats, the first of which is number `first_index`.
ContentHash content_hash(const float* x, int64_t n, uint64_t first_index);

}  // namespace lockstep::cpu

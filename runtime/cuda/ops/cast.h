#pragma once
// What others need of conversions on the GPU, whose op is in cast.cu too.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// to = or += from, exactly. T is float, BFloat16 or Float16.
template <typename T>
void widen(const T* from,  // (n)
           bool accumulate,
           float* to,  // (n)
           int64_t n,
           Stream stream);

}  // namespace lockstep::cuda

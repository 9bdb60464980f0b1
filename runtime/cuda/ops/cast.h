#pragma once
// The parts of the conversion op that others use on the GPU.

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

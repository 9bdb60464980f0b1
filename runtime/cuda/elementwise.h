#pragma once
// Sums and conversions over flat arrays on the GPU. T is float, BFloat16 or Float16.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// out = a + b. out may be a or b.
template <typename T>
void add(const T* a,  // (n)
         const T* b,  // (n)
         T* out,      // (n)
         int64_t n,
         Stream stream);

// to = from, rounded to T.
template <typename T>
void cast(const float* from,  // (n)
          T* to,              // (n)
          int64_t n,
          Stream stream);

// to = or += from.
template <typename T>
void widen(const T* from,  // (n)
           bool accumulate,
           float* to,  // (n)
           int64_t n,
           Stream stream);

// out[i] = the sum of x^2 over the i-th of `count` slices of n elements each, in double precision,
// in fixed blocks of kSquaresBlock elements.
void sums_of_squares(const float* x,  // (count, n)
                     int64_t n,
                     int count,
                     double* workspace,  // sums_of_squares_workspace_bytes(n, count)
                     double* out,        // (count) on the device, or pinned on the host
                     Stream stream);
size_t sums_of_squares_workspace_bytes(int64_t n, int count);
inline constexpr int64_t kSquaresBlock = 16384;

}  // namespace lockstep::cuda

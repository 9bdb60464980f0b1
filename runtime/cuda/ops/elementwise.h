#pragma once
// Sums and conversions over flat arrays on the GPU. T is float, BFloat16 or Float16.

#include <cstdint>

#include "runtime/base/exact_sum.h"
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

// *sum += x^2, in chunks from the first element on (exact_sum.h): the bits of cpu::add_squares.
void add_squares(const float* x,  // (n)
                 int64_t n,
                 ExactSum* workspace,  // (kSquaresBlocks)
                 ExactSum* sum,        // on the device, or pinned on the host
                 Stream stream);
inline constexpr int64_t kSquaresBlock = 16384;  // elements that a block should at least have
inline constexpr unsigned kSquaresBlocks = 1024;

}  // namespace lockstep::cuda

#pragma once
// The steps of Newton-Schulz iterations between their products.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Number of partial sums of squares of a norm.
inline constexpr int kNormParts = 512;

// to = from / max(norm of from, least). `parts` (kNormParts) is overwritten. The squares are summed
// in double precision, in an order that depends on n alone. `to` may be `from`. T: float or
// BFloat16.
template <typename T>
void divide_by_norm(
    const float* from, int64_t n, double least, double* parts, T* to, Stream stream);

// gram <- a I + b gram + c squares, computed in floats.
template <typename T>
void add_up_polynomial(const float* squares,  // (order, order)
                       int64_t order,
                       float a,
                       float b,
                       float c,
                       T* gram,  // (order, order)
                       Stream stream);

}  // namespace lockstep::cuda

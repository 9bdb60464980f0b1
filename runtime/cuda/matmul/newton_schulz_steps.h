#pragma once
// The steps of Newton-Schulz iterations between their products.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Number of partial sums of squares of a norm.
inline constexpr int kNormParts = 512;

// to = from / max(norm of from, least). `parts` (kNormParts) is overwritten. The squares are summed
// in double precision, in an order that depends on n alone. `to` may be `from`.
void divide_by_norm(
    const float* from, int64_t n, double least, double* parts, float* to, Stream stream);

// squares <- a I + b gram + c squares.
void add_up_polynomial(const float* gram,  // (order, order)
                       int64_t order,
                       float a,
                       float b,
                       float c,
                       float* squares,  // (order, order)
                       Stream stream);

}  // namespace lockstep::cuda

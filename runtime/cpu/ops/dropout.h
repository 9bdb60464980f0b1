#pragma once
// Dropout with counter-based random numbers: the mask is a function of the stream and the element's
// index, so nothing is saved for backward, and neither threads nor ranks change it.

#include <cstdint>

#include "runtime/base/rng.h"

namespace lockstep::cpu {

// y = x / (1 - p) where philox_word(stream, i) >= p * 2^32, else 0. In place (y == x) is allowed.
void dropout_forward(const float* x,  // (n)
                     float* y,        // (n)
                     int64_t n,
                     float p,  // probability of dropping, in [0, 1)
                     const RngStream& stream);

// d_x = d_y / (1 - p) where forward with the same p and stream kept the element, else 0. In place
// is allowed.
void dropout_backward(const float* d_y,  // (n)
                      float* d_x,        // (n)
                      int64_t n,
                      float p,
                      const RngStream& stream);

}  // namespace lockstep::cpu

#pragma once
// Normalisation by the channels around (Krizhevsky et al. 2012), fp32.

#include <cstdint>

#include "runtime/graph/ops/local_response_norm.h"

namespace lockstep::cpu {

// The widest window of local_response_norm.
inline constexpr int64_t kMostNormChannels = 32;

// y = x / s^beta, s_c = k + alpha / size * sum of x^2 over `size` channels from c - size / 2 on;
// channels that are not there count as zero.
void local_response_norm_forward(int64_t rows,
                                 int64_t channels,
                                 const LocalResponseNormAttributes& attributes,
                                 const float* x,  // (rows, channels)
                                 float* y);       // (rows, channels)

// d_x_j = d_y_j / s_j^beta - 2 alpha beta / size * x_j * sum of d_y_c x_c / s_c^(beta + 1) over the
// channels c whose windows hold j.
void local_response_norm_backward(int64_t rows,
                                  int64_t channels,
                                  const LocalResponseNormAttributes& attributes,
                                  const float* d_y,  // (rows, channels)
                                  const float* x,    // (rows, channels)
                                  float* d_x);       // (rows, channels)

}  // namespace lockstep::cpu

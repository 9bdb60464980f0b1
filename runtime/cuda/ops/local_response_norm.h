#pragma once
// Normalisation by the channels around (Krizhevsky et al. 2012) on the GPU; see
// runtime/cpu/ops/local_response_norm.h for the formulas. T is float, BFloat16 or Float16; all
// arithmetic is in float.

#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/local_response_norm.h"

namespace lockstep::cuda {

// The widest window.
inline constexpr int64_t kMostNormChannels = 32;

template <typename T>
void local_response_norm_forward(int64_t rows,
                                 int64_t channels,
                                 const LocalResponseNormAttributes& attributes,
                                 const T* x,  // (rows, channels)
                                 T* y,        // (rows, channels)
                                 Stream stream);

template <typename T>
void local_response_norm_backward(int64_t rows,
                                  int64_t channels,
                                  const LocalResponseNormAttributes& attributes,
                                  const T* d_y,  // (rows, channels)
                                  const T* x,    // (rows, channels)
                                  T* d_x,        // (rows, channels)
                                  Stream stream);

}  // namespace lockstep::cuda

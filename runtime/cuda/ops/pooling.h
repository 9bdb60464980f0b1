#pragma once
// Pooling of NHWC images on the GPU; see runtime/cpu/ops/pooling.h for what each function computes.
// T, what is stored, is float, BFloat16 or Float16; sums are in float. Every element of an output
// is computed by itself from all that it depends on, in a fixed order: nothing is atomic.

#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/pooling.h"

namespace lockstep::cuda {

struct PoolShape {
  int64_t images, height, width, channels;  // of x
  int64_t out_height, out_width;            // of y
  PoolAttributes window;
};

// y = the largest pixel of each window; place, where not null, which tap of the window it was.
template <typename T>
void max_pool_forward(const PoolShape& shape,
                      const T* x,      // (N, H, W, C)
                      T* y,            // (N, OH, OW, C)
                      uint8_t* place,  // (N, OH, OW, C) or null
                      Stream stream);

// d_x = sum of d_y over the windows whose largest pixel this is.
template <typename T>
void max_pool_backward(const PoolShape& shape,
                       const T* d_y,          // (N, OH, OW, C)
                       const uint8_t* place,  // (N, OH, OW, C)
                       T* d_x,                // (N, H, W, C)
                       Stream stream);

template <typename T>
void avg_pool_forward(const PoolShape& shape,
                      const T* x,  // (N, H, W, C)
                      T* y,        // (N, OH, OW, C)
                      Stream stream);
template <typename T>
void avg_pool_backward(const PoolShape& shape,
                       const T* d_y,  // (N, OH, OW, C)
                       T* d_x,        // (N, H, W, C)
                       Stream stream);

// y = the mean over all pixels of an image.
template <typename T>
void global_avg_pool_forward(int64_t images,
                             int64_t pixels,
                             int64_t channels,
                             const T* x,  // (images, pixels, channels)
                             T* y,        // (images, channels)
                             Stream stream);
template <typename T>
void global_avg_pool_backward(int64_t images,
                              int64_t pixels,
                              int64_t channels,
                              const T* d_y,  // (images, channels)
                              T* d_x,        // (images, pixels, channels)
                              Stream stream);

}  // namespace lockstep::cuda

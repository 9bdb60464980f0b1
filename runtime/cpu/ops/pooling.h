#pragma once
// Pooling over images (N, H, W, C), fp32.

#include <cstddef>
#include <cstdint>

#include "runtime/graph/ops/pooling.h"

namespace lockstep::cpu {

struct PoolShape {
  int64_t images, height, width, channels;  // of x
  int64_t out_height, out_width;            // of y
  PoolAttributes window;
};

// y = the largest of each window, the first one among equals; NaN counts as larger than all. The
// padding is never the largest.
void max_pool_forward(const PoolShape& shape,
                      const float* x,   // (N, H, W, C)
                      float* y,         // (N, OH, OW, C)
                      uint8_t* place);  // (N, OH, OW, C) number of the tap, row by row; or null

// d_x = sum of the d_y of the windows whose largest it was, window by window.
void max_pool_backward(const PoolShape& shape,
                       const float* d_y,      // (N, OH, OW, C)
                       const uint8_t* place,  // (N, OH, OW, C)
                       float* d_x);           // (N, H, W, C)

// y = the mean of each window.
void avg_pool_forward(const PoolShape& shape,
                      const float* x,  // (N, H, W, C)
                      float* y);       // (N, OH, OW, C)
void avg_pool_backward(const PoolShape& shape,
                       const float* d_y,  // (N, OH, OW, C)
                       float* d_x);       // (N, H, W, C)

// y = the mean over the pixels of an image.
void global_avg_pool_forward(int64_t images,
                             int64_t pixels,
                             int64_t channels,
                             const float* x,  // (images, pixels, channels)
                             float* y);       // (images, channels)
void global_avg_pool_backward(int64_t images,
                              int64_t pixels,
                              int64_t channels,
                              const float* d_y,  // (images, channels)
                              float* d_x);       // (images, pixels, channels)

}  // namespace lockstep::cpu

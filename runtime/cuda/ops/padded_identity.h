#pragma once
// The shortcut without parameters of a residual network on the GPU; see
// runtime/cpu/ops/padded_identity.h. T is float, BFloat16 or Float16.

#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/padded_identity.h"

namespace lockstep::cuda {

struct PaddedIdentityShape {
  int64_t images, height, width, channels;  // of x
  PaddedIdentityAttributes attributes;
  int64_t out_height() const { return (height + attributes.stride - 1) / attributes.stride; }
  int64_t out_width() const { return (width + attributes.stride - 1) / attributes.stride; }
  int64_t out_channels() const { return attributes.before + channels + attributes.after; }
};

// y = every stride-th pixel of x, `before` and `after` channels of zeros around its own.
template <typename T>
void padded_identity_forward(const PaddedIdentityShape& shape,
                             const T* x,  // (N, H, W, C)
                             T* y,        // (N, out_height, out_width, out_channels)
                             Stream stream);

// d_x = d_y at those pixels, zero at the others.
template <typename T>
void padded_identity_backward(const PaddedIdentityShape& shape,
                              const T* d_y,  // (N, out_height, out_width, out_channels)
                              T* d_x,        // (N, H, W, C)
                              Stream stream);

}  // namespace lockstep::cuda

#pragma once
// The shortcut without parameters of a residual network, fp32.

#include <cstdint>

#include "runtime/graph/ops/padded_identity.h"

namespace lockstep::cpu {

struct PaddedIdentityShape {
  int64_t images, height, width, channels;  // of x
  PaddedIdentityAttributes attributes;
  int64_t out_height() const { return (height + attributes.stride - 1) / attributes.stride; }
  int64_t out_width() const { return (width + attributes.stride - 1) / attributes.stride; }
  int64_t out_channels() const { return attributes.before + channels + attributes.after; }
};

// y = every stride-th pixel of x, `before` and `after` channels of zeros around its own.
void padded_identity_forward(const PaddedIdentityShape& shape,
                             const float* x,  // (N, H, W, C)
                             float* y);       // (N, out_height, out_width, out_channels)

// d_x = d_y at those pixels, zero at the others.
void padded_identity_backward(const PaddedIdentityShape& shape,
                              const float* d_y,  // (N, out_height, out_width, out_channels)
                              float* d_x);       // (N, H, W, C)

}  // namespace lockstep::cpu

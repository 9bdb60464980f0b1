#pragma once
// padded_identity: every stride-th pixel of x in both directions, with channels of zeros before and
// after x's channels: the shortcut without parameters of He et al. 2015 (option A).
//   inputs x (N, H, W, C); outputs y (N, ceil(H / stride), ceil(W / stride), before + C + after)
// padded_identity_backward: d_x = d_y at these pixels, zero elsewhere. inputs d_y; outputs d_x

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct PaddedIdentityAttributes {
  int64_t stride = 1;
  int64_t before = 0, after = 0;  // channels of zeros
};

namespace ops {

// Every stride-th pixel of x, with channels of zeros before and after its channels.
TensorId padded_identity(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         const PaddedIdentityAttributes& attributes);

}  // namespace ops

struct PaddedIdentityShape {
  int64_t images, height, width, channels;      // of x
  int64_t out_height, out_width, out_channels;  // of y
  int64_t stride, before;

  PaddedIdentityShape(const Shape& x, const Shape& y, const PaddedIdentityAttributes& attributes)
      : images(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        out_height(y[1]),
        out_width(y[2]),
        out_channels(y[3]),
        stride(attributes.stride),
        before(attributes.before) {}
};

template <typename T>
struct PaddedIdentityForward {
  PaddedIdentityShape shape;
  const T* x;  // (N, H, W, C)
  T* y;        // (N, out_height, out_width, out_channels)

  static PaddedIdentityForward of(const OpCall& op) {
    return {
        .shape = {op.input_shape(0), op.output_shape(0), op.attributes<PaddedIdentityAttributes>()},
        .x = op.input<T>(0),
        .y = op.output<T>(0)};
  }
};

template <typename T>
struct PaddedIdentityBackward {
  PaddedIdentityShape shape;
  const T* d_y;  // (N, out_height, out_width, out_channels)
  T* d_x;        // (N, H, W, C)

  static PaddedIdentityBackward of(const OpCall& op) {
    return {
        .shape = {op.output_shape(0), op.input_shape(0), op.attributes<PaddedIdentityAttributes>()},
        .d_y = op.input<T>(0),
        .d_x = op.output<T>(0)};
  }
};

}  // namespace lockstep

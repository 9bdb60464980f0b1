#pragma once
// image_tokens: the patches of images as tokens, after a class token, with learned positions
// (Dosovitskiy et al. 2020): y[b, 0] = class_token + position[0], y[b, 1 + i] = x[b, i] +
// position[1 + i].
//   inputs  x (B, H, W, C), whose pixels are patches, class_token (C), position (H W + 1, C)
//   output  y (B, H W + 1, C)
// image_tokens_backward:
//   inputs  d_y; outputs d_x, d_class_token, d_position: sums over the samples, in order
// Both parameters are used once in a graph, so their gradients are always overwritten.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

namespace ops {

// x (B, H, W, C), class_token (C), position (H W + 1, C) -> (B, H W + 1, C).
TensorId image_tokens(GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      TensorId class_token,
                      TensorId position);

}  // namespace ops

template <typename T>
struct ImageTokensForward {
  int64_t batch, tokens, width;  // B, H W + 1, C
  const T* x;                    // (B, tokens - 1, C)
  const T* class_token;          // (C)
  const T* position;             // (tokens, C)
  T* y;                          // (B, tokens, C)

  static ImageTokensForward of(const OpCall& op) {
    const Shape& y = op.output_shape(0);
    return {.batch = y[0],
            .tokens = y[1],
            .width = y[2],
            .x = op.input<T>(0),
            .class_token = op.input<T>(1),
            .position = op.input<T>(2),
            .y = op.output<T>(0)};
  }
};

template <typename T>
struct ImageTokensBackward {
  int64_t batch, tokens, width;
  const T* d_y;            // (B, tokens, C)
  T* d_x;                  // (B, tokens - 1, C)
  Wide<T>* d_class_token;  // (C)
  Wide<T>* d_position;     // (tokens, C)

  static ImageTokensBackward of(const OpCall& op) {
    const Shape& d_y = op.input_shape(0);
    return {.batch = d_y[0],
            .tokens = d_y[1],
            .width = d_y[2],
            .d_y = op.input<T>(0),
            .d_x = op.output<T>(0),
            .d_class_token = op.output<Wide<T>>(1),
            .d_position = op.output<Wide<T>>(2)};
  }
};

}  // namespace lockstep

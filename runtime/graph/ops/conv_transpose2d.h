#pragma once
// conv_transpose2d: y = bias + the gradient of a conv2d's input, if x is the gradient of its
// output: each pixel of x adds its kernel to y, at distances of the stride. So its kernels are
// those of conv2d with x and y exchanged: Conv2dShape here is that of the convolution from y's
// images to x's.
// conv_transpose2d_backward: d_x = conv2d(d_y, weight), d_weight (+)= correlation of d_y and x,
// d_bias (+)= sums of d_y. Each output may be absent, d_weight if the weight is frozen.

#include <cstdint>
#include <string>

#include "runtime/graph/conv2d_shape.h"
#include "runtime/graph/extent2d.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/conv2d.h"

namespace lockstep::graph {

class GraphBuilder;

using ConvTranspose2dIn = Conv2dIn;
using ConvTranspose2dOut = Conv2dOut;
using ConvTranspose2dBackwardIn = Conv2dBackwardIn;
using ConvTranspose2dBackwardOut = Conv2dBackwardOut;

struct ConvTranspose2dBackwardAttributes {
  Conv2dAttributes forward;
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
};

namespace ops {

// -> (N, output.height, output.width, O). A convolution with these attributes (no activation) must
// map images of that size to images of x's size. bias may be kNoTensor.
TensorId conv_transpose2d(GraphBuilder& builder,
                          const std::string& name,
                          TensorId x,
                          TensorId weight,
                          TensorId bias,
                          const Conv2dAttributes& attributes,
                          Extent2d output);

}  // namespace ops

// The pixels of y as rows of a linear layer, whose bias is that of y.
inline Conv2dShape pixels_of_y(const Conv2dShape& back) {
  return {.batch = back.batch,
          .height = back.height,
          .width = back.width,
          .channels = back.channels,
          .outputs = back.channels,
          .kernel_h = 1,
          .kernel_w = 1};
}

template <typename T>
struct ConvTranspose2dForward {
  Conv2dShape shape;
  const T* x;            // (N, H, W, I)
  const T* weight;       // (I, KH, KW, O/G)
  const T* bias;         // (O) or null
  T* y;                  // (N, OH, OW, O)
  std::byte* workspace;  // as the implementation needs

  static ConvTranspose2dForward of(const OpCall& op) {
    return {.shape = conv2d_shape(op.output_shape(ConvTranspose2dOut::kY),
                                  op.input_shape(ConvTranspose2dIn::kWeight),
                                  op.attributes<Conv2dAttributes>()),
            .x = op.input<T>(ConvTranspose2dIn::kX),
            .weight = op.input<T>(ConvTranspose2dIn::kWeight),
            .bias = op.input<T>(ConvTranspose2dIn::kBias),
            .y = op.output<T>(ConvTranspose2dOut::kY),
            .workspace = op.workspace()};
  }
  // Computes y without the bias, as conv2d's gradient of its input.
  Conv2dBackward<T> product() const {
    return {.shape = shape,
            .accumulate_weight = false,
            .accumulate_bias = false,
            .d_y = x,
            .x = nullptr,
            .weight = weight,
            .d_x = y,
            .d_weight = nullptr,
            .d_bias = nullptr,
            .workspace = workspace};
  }
  // Adds the bias to y, as conv2d does.
  Conv2dForward<T> bias_sum() const {
    return {.shape = pixels_of_y(shape),
            .activation = Activation::kNone,
            .x = nullptr,
            .weight = nullptr,
            .bias = bias,
            .y = y,
            .workspace = workspace};
  }
};

template <typename T>
struct ConvTranspose2dBackward {
  Conv2dShape shape;
  bool accumulate_weight, accumulate_bias;
  const T* d_y;          // (N, OH, OW, O)
  const T* x;            // (N, H, W, I)
  const T* weight;       // (I, KH, KW, O/G)
  T* d_x;                // (N, H, W, I) or null
  Wide<T>* d_weight;     // (I, KH, KW, O/G) or null
  Wide<T>* d_bias;       // (O) or null
  std::byte* workspace;  // as the implementation needs

  static ConvTranspose2dBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<ConvTranspose2dBackwardAttributes>();
    return {.shape = conv2d_shape(op.input_shape(ConvTranspose2dBackwardIn::kDY),
                                  op.input_shape(ConvTranspose2dBackwardIn::kWeight),
                                  attributes.forward),
            .accumulate_weight = attributes.accumulate_weight,
            .accumulate_bias = attributes.accumulate_bias,
            .d_y = op.input<T>(ConvTranspose2dBackwardIn::kDY),
            .x = op.input<T>(ConvTranspose2dBackwardIn::kX),
            .weight = op.input<T>(ConvTranspose2dBackwardIn::kWeight),
            .d_x = op.output<T>(ConvTranspose2dBackwardOut::kDX),
            .d_weight = op.output<Wide<T>>(ConvTranspose2dBackwardOut::kDWeight),
            .d_bias = op.output<Wide<T>>(ConvTranspose2dBackwardOut::kDBias),
            .workspace = op.workspace()};
  }
  // Computes d_x, as conv2d.
  Conv2dForward<T> input_product() const {
    return {.shape = shape,
            .activation = Activation::kNone,
            .x = d_y,
            .weight = weight,
            .bias = nullptr,
            .y = d_x,
            .workspace = workspace};
  }
  // Computes d_weight, as conv2d's gradient of its weights.
  Conv2dBackward<T> weight_product() const {
    return {.shape = shape,
            .accumulate_weight = accumulate_weight,
            .accumulate_bias = false,
            .d_y = x,
            .x = d_y,
            .weight = weight,
            .d_x = nullptr,
            .d_weight = d_weight,
            .d_bias = nullptr,
            .workspace = workspace};
  }
  // Computes d_bias.
  Conv2dBackward<T> bias_sum() const {
    return {.shape = pixels_of_y(shape),
            .accumulate_weight = false,
            .accumulate_bias = accumulate_bias,
            .d_y = d_y,
            .x = nullptr,
            .weight = nullptr,
            .d_x = nullptr,
            .d_weight = nullptr,
            .d_bias = d_bias,
            .workspace = workspace};
  }
};

}  // namespace lockstep::graph

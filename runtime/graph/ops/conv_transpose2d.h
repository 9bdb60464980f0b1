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

using ConvTranspose2dIn = Conv2dIn;
using ConvTranspose2dOut = Conv2dOut;
using ConvTranspose2dBackwardIn = Conv2dBackwardIn;
using ConvTranspose2dBackwardOut = Conv2dBackwardOut;

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
  const OpCall& call = OpCall::none();
  Conv2dShape shape = conv2d_shape(call.output_shape(ConvTranspose2dOut::kY),
                                   call.input_shape(ConvTranspose2dIn::kWeight),
                                   call.attributes<Conv2dAttributes>());
  const T* x = call.input<T>(ConvTranspose2dIn::kX);            // (N, H, W, I)
  const T* weight = call.input<T>(ConvTranspose2dIn::kWeight);  // (I, KH, KW, O/G)
  const T* bias = call.input<T>(ConvTranspose2dIn::kBias);      // (O) or null
  T* y = call.output<T>(ConvTranspose2dOut::kY);                // (N, OH, OW, O)
  std::byte* workspace = call.workspace();                      // as the implementation needs

  // Computes y without the bias, as conv2d's gradient of its input.
  Conv2dBackward<T> product() const {
    return {.shape = shape,
            .accumulate_weight = false,
            .accumulate_bias = false,
            .d_y = x,
            .weight = weight,
            .d_x = y,
            .workspace = workspace};
  }
  // Adds the bias to y, as conv2d does.
  Conv2dForward<T> bias_sum() const {
    return {.shape = pixels_of_y(shape),
            .activation = Activation::kNone,
            .bias = bias,
            .y = y,
            .workspace = workspace};
  }
};

template <typename T>
struct ConvTranspose2dBackward {
  const OpCall& call = OpCall::none();
  Conv2dShape shape = conv2d_shape(call.input_shape(ConvTranspose2dBackwardIn::kDY),
                                   call.input_shape(ConvTranspose2dBackwardIn::kWeight),
                                   call.attributes<Conv2dBackwardAttributes>().forward);
  bool accumulate_weight = call.attributes<Conv2dBackwardAttributes>().accumulate_weight;
  bool accumulate_bias = call.attributes<Conv2dBackwardAttributes>().accumulate_bias;
  const T* d_y = call.input<T>(ConvTranspose2dBackwardIn::kDY);         // (N, OH, OW, O)
  const T* x = call.input<T>(ConvTranspose2dBackwardIn::kX);            // (N, H, W, I)
  const T* weight = call.input<T>(ConvTranspose2dBackwardIn::kWeight);  // (I, KH, KW, O/G)
  T* d_x = call.output<T>(ConvTranspose2dBackwardOut::kDX);             // (N, H, W, I) or null
  // (I, KH, KW, O/G) or null
  Wide<T>* d_weight = call.output<Wide<T>>(ConvTranspose2dBackwardOut::kDWeight);
  Wide<T>* d_bias = call.output<Wide<T>>(ConvTranspose2dBackwardOut::kDBias);  // (O) or null
  std::byte* workspace = call.workspace();  // as the implementation needs

  // Computes d_x, as conv2d.
  Conv2dForward<T> input_product() const {
    return {.shape = shape,
            .activation = Activation::kNone,
            .x = d_y,
            .weight = weight,
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
            .d_weight = d_weight,
            .workspace = workspace};
  }
  // Computes d_bias.
  Conv2dBackward<T> bias_sum() const {
    return {.shape = pixels_of_y(shape),
            .accumulate_weight = false,
            .accumulate_bias = accumulate_bias,
            .d_y = d_y,
            .d_bias = d_bias,
            .workspace = workspace};
  }
};

// The convolution of a call: conv2d, conv_transpose2d, conv2d_batch_norm or a backward pass.
inline Conv2dShape conv2d_shape(const OpCall& call) {
  switch (call.kind()) {
    case OpKind::kConv2dBackward: return Conv2dBackward<std::byte>{call}.shape;
    case OpKind::kConv2dBatchNorm: return Conv2dBatchNormForward<std::byte>{call}.shape;
    case OpKind::kConvTranspose2d: return ConvTranspose2dForward<std::byte>{call}.shape;
    case OpKind::kConvTranspose2dBackward: return ConvTranspose2dBackward<std::byte>{call}.shape;
    default: return Conv2dForward<std::byte>{call}.shape;
  }
}

}  // namespace lockstep::graph

#include "runtime/graph/ops/conv2d.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/conv2d_shape.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

Conv2dShape conv2d_shape(const Shape& x, const Shape& weight, const Conv2dAttributes& a) {
  return {.batch = x[0],
          .height = x[1],
          .width = x[2],
          .channels = x[3],
          .outputs = weight[0],
          .kernel_h = weight[1],
          .kernel_w = weight[2],
          .stride_h = a.stride.height,
          .stride_w = a.stride.width,
          .pad_h = a.padding.height,
          .pad_w = a.padding.width,
          .dilation_h = a.dilation.height,
          .dilation_w = a.dilation.width,
          .groups = a.groups};
}

TensorId ops::conv2d(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     TensorId weight,
                     TensorId bias,
                     const Conv2dAttributes& a) {
  const Shape x_shape = builder.shape(x), w_shape = builder.shape(weight);
  LOCKSTEP_CHECK(x_shape.rank() == 4 && w_shape.rank() == 4 && a.groups > 0 &&
                     x_shape[3] == w_shape[3] * a.groups && w_shape[0] % a.groups == 0,
                 "{}: x {} weight {} groups {} ",
                 name,
                 to_string(x_shape),
                 to_string(w_shape),
                 a.groups);
  LOCKSTEP_CHECK(
      bias == kNoTensor || builder.shape(bias) == Shape({w_shape[0]}), "{}: bias ", name);
  LOCKSTEP_CHECK(!saves_pre_activation(a.activation), "{}: activation ", name);
  const Conv2dShape extents = conv2d_shape(x_shape, w_shape, a);
  const int64_t height = extents.out_height(), width = extents.out_width();
  LOCKSTEP_CHECK(height > 0 && width > 0,
                 "{}: images {} are smaller than the kernel ",
                 name,
                 to_string(x_shape));
  const TensorId y = builder.activation_tensor(name, {x_shape[0], height, width, w_shape[0]});
  builder.append({OpKind::kConv2d, name, {x, weight, bias}, {y}, a});
  return y;
}

OpInputs append_conv2d_backward(GradientBuilder& builder,
                                const Op& op,
                                OpKind kind,
                                TensorId d_pre) {
  const TensorId x = op.inputs[Conv2dIn::kX], weight = op.inputs[Conv2dIn::kWeight],
                 bias = op.inputs[Conv2dIn::kBias];
  const TensorId d_x = builder.needs_gradient(x) ? builder.new_gradient(x) : kNoTensor;
  const auto [d_weight, accumulate_weight] = weight_gradient(builder, weight);
  const auto [d_bias, accumulate_bias] = weight_gradient(builder, bias);
  builder.append(
      {kind,
       op.name,
       {d_pre, x, weight},
       {d_x, d_weight, d_bias},
       Conv2dBackwardAttributes{op.as<Conv2dAttributes>(), accumulate_weight, accumulate_bias}});
  return {d_x,
          passed_on(builder, op.name, weight, d_weight),
          passed_on(builder, op.name, bias, d_bias)};
}

namespace {

OpInputs conv2d_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId y = op.outputs[Conv2dOut::kY], d_y = d_outputs[Conv2dOut::kY];
  const TensorId d_pre =
      append_activation_backward(builder, op.name, d_y, y, op.as<Conv2dAttributes>().activation);
  return append_conv2d_backward(builder, op, OpKind::kConv2dBackward, d_pre);
}

// Taps in the padding count, as is usual.
int64_t conv2d_flops(const Graph& graph, const Op& op) {
  return product_flops(graph, op.outputs[Conv2dOut::kY], op.inputs[Conv2dIn::kWeight]);
}

int64_t conv2d_batch_norm_flops(const Graph& graph, const Op& op) {
  const TensorId y = op.outputs[Conv2dBatchNormOut::kY];
  return product_flops(graph, y, op.inputs[Conv2dBatchNormIn::kWeight]) +
         kBatchNormFlops * graph.shape(y).elements();
}

int64_t conv2d_backward_flops(const Graph& graph, const Op& op) {
  const int products = op.outputs[Conv2dBackwardOut::kDX] == kNoTensor ? 1 : 2;
  return products * product_flops(graph,
                                  op.inputs[Conv2dBackwardIn::kDY],
                                  op.inputs[Conv2dBackwardIn::kWeight]);
}

}  // namespace

const OpSchema kConv2dSchema = {conv2d_gradient, conv2d_flops, {}};
const OpSchema kConv2dBackwardSchema = {nullptr, conv2d_backward_flops, {}};
const OpSchema kConv2dBatchNormSchema = {nullptr, conv2d_batch_norm_flops, {}};

}  // namespace lockstep::graph

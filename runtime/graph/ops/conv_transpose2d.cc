#include "runtime/graph/ops/conv_transpose2d.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::conv_transpose2d(GraphBuilder& builder,
                               const std::string& name,
                               TensorId x,
                               TensorId weight,
                               TensorId bias,
                               const Conv2dAttributes& attributes,
                               Extent2d output) {
  const Shape x_shape = builder.shape(x), w_shape = builder.shape(weight);
  LOCKSTEP_CHECK(x_shape.rank() == 4 && w_shape.rank() == 4 && w_shape[0] == x_shape[3] &&
                     attributes.groups > 0 && x_shape[3] % attributes.groups == 0 &&
                     attributes.activation == Activation::kNone,
                 "{}: x {} weight {} groups {} ",
                 name,
                 to_string(x_shape),
                 to_string(w_shape),
                 attributes.groups);
  const int64_t outputs = w_shape[3] * attributes.groups;
  const Shape y_shape = {x_shape[0], output.height, output.width, outputs};
  const Conv2dShape back = conv2d_shape(y_shape, w_shape, attributes);
  LOCKSTEP_CHECK(back.out_height() == x_shape[1] && back.out_width() == x_shape[2],
                 "{}: no convolution makes {} of {} ",
                 name,
                 to_string(x_shape),
                 to_string(y_shape));
  LOCKSTEP_CHECK(bias == kNoTensor || builder.shape(bias) == Shape({outputs}), "{}: bias ", name);
  const TensorId y = builder.activation_tensor(name, y_shape);
  builder.append({OpKind::kConvTranspose2d, name, {x, weight, bias}, {y}, attributes});
  return y;
}

namespace {

OpInputs conv_transpose2d_gradient(GradientBuilder& builder,
                                   const Op& op,
                                   const OpOutputs& d_outputs) {
  return append_conv2d_backward(
      builder, op, OpKind::kConvTranspose2dBackward, d_outputs[ConvTranspose2dOut::kY]);
}

// Each pixel of x is multiplied by all weights of its channel.
int64_t conv_transpose2d_flops(const Graph& graph, const Op& op) {
  return product_flops(
      graph, op.inputs[ConvTranspose2dIn::kX], op.inputs[ConvTranspose2dIn::kWeight]);
}

int64_t conv_transpose2d_backward_flops(const Graph& graph, const Op& op) {
  const int products = op.outputs[ConvTranspose2dBackwardOut::kDX] == kNoTensor ? 1 : 2;
  return products * product_flops(graph,
                                  op.inputs[ConvTranspose2dBackwardIn::kX],
                                  op.inputs[ConvTranspose2dBackwardIn::kWeight]);
}

}  // namespace

const OpSchema kConvTranspose2dSchema = {conv_transpose2d_gradient, conv_transpose2d_flops, {}};
const OpSchema kConvTranspose2dBackwardSchema = {nullptr, conv_transpose2d_backward_flops, {}};

}  // namespace lockstep::graph

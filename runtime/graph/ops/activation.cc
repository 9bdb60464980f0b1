#include "runtime/graph/ops/activation.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::activation(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         Activation activation) {
  const TensorId y = builder.activation_tensor(name, builder.shape(x));
  builder.append({OpKind::kActivation, name, {x}, {y}, ActivationAttributes{activation}});
  return y;
}

TensorId append_activation_backward(GradientBuilder& builder,
                                    const std::string& name,
                                    TensorId d_y,
                                    TensorId saved,
                                    Activation activation) {
  if (activation == Activation::kNone) return d_y;
  const TensorId d_x = builder.new_gradient(saved);
  builder.append(
      {OpKind::kActivationBackward, name, {d_y, saved}, {d_x}, ActivationAttributes{activation}});
  return d_x;
}

namespace {

OpInputs activation_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const Activation activation = op.as<ActivationAttributes>().activation;
  const TensorId saved = saves_pre_activation(activation) ? op.inputs[ActivationIn::kX]
                                                          : op.outputs[ActivationOut::kY];
  return {append_activation_backward(
      builder, op.name, d_outputs[ActivationOut::kY], saved, activation)};
}

}  // namespace

const OpSchema kActivationSchema = {activation_gradient,
                                    elementwise_flops<10>,
                                    {{ActivationOut::kY, ActivationIn::kX}},
                                    /*joins_lanes=*/true};
const OpSchema kActivationBackwardSchema = {
    nullptr,
    elementwise_flops<kActivationBackwardFlops>,
    {{ActivationBackwardOut::kDX, ActivationBackwardIn::kDY}},
    /*joins_lanes=*/true};

}  // namespace lockstep::graph

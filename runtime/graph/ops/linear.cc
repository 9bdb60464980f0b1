#include "runtime/graph/ops/linear.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

namespace {

TensorId append_linear(GraphBuilder& builder,
                       const std::string& name,
                       TensorId x,
                       TensorId weight,
                       TensorId bias,
                       Activation activation) {
  const Shape x_shape = builder.shape(x), w_shape = builder.shape(weight);
  const bool flatten = x_shape.columns() != w_shape[1];
  LOCKSTEP_CHECK(w_shape.rank() == 2 && (!flatten || x_shape.elements() == x_shape[0] * w_shape[1]),
                 "{}: x {} weight {} ",
                 name,
                 to_string(x_shape),
                 to_string(w_shape));
  LOCKSTEP_CHECK(
      bias == kNoTensor || builder.shape(bias) == Shape({w_shape[0]}), "{}: bias ", name);
  Shape y_shape;
  for (int i = 0; i < (flatten ? 1 : x_shape.rank() - 1); ++i) y_shape.append(x_shape[i]);
  y_shape.append(w_shape[0]);
  const TensorId y = builder.activation_tensor(name, y_shape);
  const bool keep_pre = builder.training() && saves_pre_activation(activation);
  const TensorId pre = keep_pre ? builder.activation_tensor(name + ".pre", y_shape) : kNoTensor;
  builder.append(
      {OpKind::kLinear, name, {x, weight, bias}, {y, pre}, LinearAttributes{activation}});
  return y;
}

}  // namespace

TensorId ops::linear(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     TensorId weight,
                     TensorId bias,
                     Activation activation) {
  const std::vector<OutputRows> parts = lora_parts(builder, weight);
  if (parts.empty()) return append_linear(builder, name, x, weight, bias, activation);
  const TensorId y = append_linear(builder, name, x, weight, bias, Activation::kNone);
  const TensorId sum = ops::lora(builder, name, x, weight, y, parts);
  if (activation == Activation::kNone) return sum;
  return ops::activation(builder, name + ".activation", sum, activation);
}

namespace {

OpInputs linear_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId x = op.inputs[LinearIn::kX], weight = op.inputs[LinearIn::kWeight],
                 bias = op.inputs[LinearIn::kBias];
  const Activation activation = op.as<LinearAttributes>().activation;
  const TensorId saved = op.outputs[LinearOut::kPre] != kNoTensor ? op.outputs[LinearOut::kPre]
                                                                  : op.outputs[LinearOut::kY];
  const TensorId d_pre =
      append_activation_backward(builder, op.name, d_outputs[LinearOut::kY], saved, activation);
  const TensorId d_x = builder.needs_gradient(x) ? builder.new_gradient(x) : kNoTensor;
  const auto [d_weight, accumulate_weight] = builder.parameter_gradient(weight);
  const auto [d_bias, accumulate_bias] = builder.parameter_gradient(bias);
  builder.append({OpKind::kLinearBackward,
                  op.name,
                  {d_pre, d_weight == kNoTensor ? kNoTensor : x, weight, kNoTensor},
                  {d_x, d_weight, d_bias},
                  LinearBackwardAttributes{accumulate_weight, accumulate_bias, Activation::kNone}});
  return {d_x, kNoTensor, kNoTensor};
}

int64_t linear_flops(const Graph& graph, const Op& op) {
  return product_flops(graph, op.outputs[LinearOut::kY], op.inputs[LinearIn::kWeight]);
}

int64_t linear_backward_flops(const Graph& graph, const Op& op) {
  const int products = (op.outputs[LinearBackwardOut::kDX] == kNoTensor ? 0 : 1) +
                       (op.outputs[LinearBackwardOut::kDWeight] == kNoTensor ? 0 : 1);
  const int64_t derivative =
      op.inputs[LinearBackwardIn::kSaved] == kNoTensor
          ? 0
          : kActivationBackwardFlops * graph.shape(op.inputs[LinearBackwardIn::kSaved]).elements();
  return products * product_flops(graph,
                                  op.inputs[LinearBackwardIn::kDY],
                                  op.inputs[LinearBackwardIn::kWeight]) +
         derivative;
}

}  // namespace

const OpSchema kLinearSchema = {linear_gradient, linear_flops, {}, /*joins_lanes=*/true};
const OpSchema kLinearBackwardSchema = {nullptr, linear_backward_flops, {}, /*joins_lanes=*/true};

}  // namespace lockstep::graph

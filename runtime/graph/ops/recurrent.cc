#include "runtime/graph/ops/recurrent.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

std::pair<TensorId, TensorId> ops::recurrent(GraphBuilder& builder,
                                             const std::string& name,
                                             const RecurrentInputs& inputs,
                                             const RecurrentAttributes& attributes) {
  const Shape x = builder.shape(inputs.x), r = builder.shape(inputs.r);
  const int64_t directions = directions_of(attributes.direction);
  const int64_t hidden = r[2], rows = gates_of(attributes.cell) * hidden;
  LOCKSTEP_CHECK(x.rank() == 3 && r == Shape({directions, rows, hidden}) &&
                     builder.shape(inputs.w) == Shape({directions, rows, x[2]}),
                 "{}: x {} w {} r {} ",
                 name,
                 to_string(x),
                 to_string(builder.shape(inputs.w)),
                 to_string(r));
  LOCKSTEP_CHECK(
      inputs.bias == kNoTensor || builder.shape(inputs.bias) == Shape({directions, 2 * rows}),
      "{}: bias ",
      name);
  for (const TensorId state : {inputs.initial_h, inputs.initial_c})
    LOCKSTEP_CHECK(state == kNoTensor || builder.shape(state) == Shape({directions, x[1], hidden}),
                   "{}: an initial state ",
                   name);
  const bool lstm = attributes.cell == Cell::kLstm;
  LOCKSTEP_CHECK(lstm || inputs.initial_c == kNoTensor, "{}: initial_c ", name);
  const Shape states = {directions, x[0], x[1], hidden};
  const TensorId y = builder.activation_tensor(name, states);
  const TensorId cells = lstm ? builder.activation_tensor(name + ".cells", states) : kNoTensor;
  const TensorId gates = builder.statistics_tensor(
      name + ".gates", {directions, x[0], x[1], slots_of(attributes.cell) * hidden});
  builder.append({OpKind::kRecurrent,
                  name,
                  {inputs.x, inputs.w, inputs.r, inputs.bias, inputs.initial_h, inputs.initial_c},
                  {y, cells, gates},
                  attributes});
  return {y, cells};
}

namespace {

OpInputs recurrent_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const auto of_activation = [&](TensorId tensor) {
    return tensor != kNoTensor && builder.needs_gradient(tensor) ? builder.new_gradient(tensor)
                                                                 : kNoTensor;
  };
  const TensorId d_x = of_activation(op.inputs[RecurrentIn::kX]);
  const TensorId d_h = of_activation(op.inputs[RecurrentIn::kInitialH]),
                 d_c = of_activation(op.inputs[RecurrentIn::kInitialC]);
  const auto [d_w, accumulate_w] = weight_gradient(builder, op.inputs[RecurrentIn::kW]);
  const auto [d_r, accumulate_r] = weight_gradient(builder, op.inputs[RecurrentIn::kR]);
  const auto [d_bias, accumulate_bias] = weight_gradient(builder, op.inputs[RecurrentIn::kBias]);
  builder.append({OpKind::kRecurrentBackward,
                  op.name,
                  {d_outputs[RecurrentOut::kY],
                   d_outputs[RecurrentOut::kCells],
                   op.inputs[RecurrentIn::kX],
                   op.inputs[RecurrentIn::kW],
                   op.inputs[RecurrentIn::kR],
                   op.inputs[RecurrentIn::kInitialH],
                   op.inputs[RecurrentIn::kInitialC],
                   op.outputs[RecurrentOut::kY],
                   op.outputs[RecurrentOut::kCells],
                   op.outputs[RecurrentOut::kGates]},
                  {d_x, d_w, d_r, d_bias, d_h, d_c},
                  RecurrentBackwardAttributes{
                      op.as<RecurrentAttributes>(), accumulate_w, accumulate_r, accumulate_bias}});
  return {d_x,
          passed_on(builder, op.name, op.inputs[RecurrentIn::kW], d_w),
          passed_on(builder, op.name, op.inputs[RecurrentIn::kR], d_r),
          passed_on(builder, op.name, op.inputs[RecurrentIn::kBias], d_bias),
          d_h,
          d_c};
}

// Flops of the products; the gates themselves take little in comparison.
int64_t recurrent_flops(const Graph& graph, const Op& op) {
  const bool forward = op.kind == OpKind::kRecurrent;
  using In = RecurrentBackwardIn;
  const Shape &x = graph.shape(forward ? op.inputs[RecurrentIn::kX] : op.inputs[In::kX]),
              &w = graph.shape(forward ? op.inputs[RecurrentIn::kW] : op.inputs[In::kW]),
              &r = graph.shape(forward ? op.inputs[RecurrentIn::kR] : op.inputs[In::kR]);
  return (forward ? 2 : 4) * x[0] * x[1] * (w.elements() + r.elements());
}

}  // namespace

const OpSchema kRecurrentSchema = {recurrent_gradient, recurrent_flops, {}};
const OpSchema kRecurrentBackwardSchema = {nullptr, recurrent_flops, {}};

}  // namespace lockstep::graph

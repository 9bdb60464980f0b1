// Recurrent layers over sequences (T, N, F): LSTM, GRU, RNN.

#include <algorithm>
#include <string>
#include <tuple>

#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/recurrent_steps.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::onnx {
namespace {

// The rows of the weights are those of the gates: (directions, gates * hidden, ...).
template <int64_t kGates>
std::vector<Form> rule_recurrent(const NodeView& node) {
  node.require_inputs(3, 8);
  node.require_rank(0, 3, 3);
  node.require_rank(2, 3, 3);
  const std::string direction = node.node().text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    node.refuse("attribute direction is {}; must be forward, reverse or bidirectional", direction);
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const int64_t hidden = node.integer("hidden_size", node.extents(2)[2], 1);
  const bool batch_first = node.integer("layout", 0) != 0;
  const Extents& input = node.extents(0);
  const int64_t length = input[batch_first ? 1 : 0];
  const int64_t batch = input[batch_first ? 0 : 1];
  const Extents state =
      batch_first ? Extents{batch, directions, hidden} : Extents{directions, batch, hidden};
  const Extents expected[] = {input,
                              {directions, kGates * hidden, input[2]},
                              {directions, kGates * hidden, hidden},
                              {directions, 2 * kGates * hidden},
                              {batch},
                              state,
                              state,
                              {directions, 3 * hidden}};
  for (size_t index = 1; index < node.inputs(); ++index)
    if (node.has(index)) node.require_extents(index, expected[index]);
  const ElementType type = node.type(0);
  const Extents output = batch_first ? Extents{batch, length, directions, hidden}
                                     : Extents{length, directions, batch, hidden};
  return {{type, output}, {type, state}, {type, state}};
}

graph::Cell cell_of(const Node& node) {
  const size_t functions = node.op == "LSTM" ? 3 : node.op == "GRU" ? 2 : 1;
  const auto found = node.attributes.find("activations");
  std::vector<std::string> given;
  if (found != node.attributes.end()) {
    if (const auto* const list = std::get_if<std::vector<std::string>>(&found->second))
      given = *list;
    for (std::string& function : given)
      std::ranges::transform(
          function, function.begin(), [](unsigned char c) { return tolower(c); });
  }
  const std::vector<std::string> defaults = {"sigmoid", "tanh", "tanh"};
  bool relu = false;
  for (size_t i = 0; i < given.size(); ++i) {
    relu = relu || given[i] == "relu";
    const bool known = functions == 1 ? given[i] == "tanh" || given[i] == "relu"
                                      : given[i] == defaults[i % functions];
    if (!known || (functions == 1 && given[i] != given[0]))
      refuse(node,
             "activations: value is {}; allowed: {}",
             given[i],
             functions == 1 ? "Tanh or Relu, the same in both directions"
                            : "the defaults, Sigmoid and Tanh");
  }
  if (node.op == "LSTM") return graph::Cell::kLstm;
  if (node.op == "GRU") return graph::Cell::kGru;
  return relu ? graph::Cell::kRelu : graph::Cell::kTanh;
}

graph::Direction direction_of(const Node& node) {
  const std::string direction = node.text("direction", "forward");
  return direction == "forward"   ? graph::Direction::kForward
         : direction == "reverse" ? graph::Direction::kReverse
                                  : graph::Direction::kBoth;
}

// Whether the axis of samples precedes those of times and directions.
bool is_batch_first(const Node& node) { return node.integer("layout", 0) != 0; }

// Rejects unsupported attributes and inputs.
void check(Lowering& lowering, const Node& node) {
  if (node.number("clip", 0) != 0) refuse(node, "clip: is not supported");
  if (node.input(4) < 0) return;
  const Value& lengths = lowering.value(node.input(4));
  const int64_t times = lowering.value(node.input(0)).extents[is_batch_first(node) ? 1 : 0];
  const bool all = lengths.kind == ValueKind::kConstant &&
                   std::ranges::all_of(lengths.array.as_int64(),
                                       [&](int64_t length) { return length == times; });
  if (!all) refuse(node, "sequence_lens: allowed: a constant of {}, the full length", times);
}

// A parameter, or a value computed from parameters: exporters insert nodes that reorder the gates.
TensorId weight_of(Lowering& lowering, int number) {
  const ParameterSource source = lowering.readers().source_of(number);
  return source.value >= 0 && !source.transposed &&
                 lowering.parameters().can_have(source.value, Storage::kAsInFile)
             ? lowering.parameters().get(source.value)
             : lowering.layouts().plain(number);
}

// A value with three axes, transposed if necessary so that the samples are the second axis.
TensorId by_time(Lowering& lowering, const Node& node, int number) {
  const TensorId x = lowering.layouts().plain(number);
  if (!is_batch_first(node)) return x;
  const std::string name = lowering.value(number).name + ".by_time";
  return ops::transpose(lowering.builder(), name, x, {1, 0, 2});
}

// The initial state; kNoTensor if it is absent or zeros.
TensorId state_of(Lowering& lowering, const Node& node, int number) {
  if (number < 0 || filling_of(lowering.readers().origin(number)) == 0) return kNoTensor;
  return by_time(lowering, node, number);
}

// The states (D, N, H) after the last step of each direction, from all states (D, T, N, H).
TensorId last_states(Lowering& lowering,
                     const std::string& name,
                     TensorId states,
                     graph::Direction direction) {
  graph::GraphBuilder& builder = lowering.builder();
  const Shape all = builder.shape(states);
  std::vector<TensorId> parts;
  for (int64_t d = 0; d < all[0]; ++d) {
    const bool reverse = direction == graph::Direction::kReverse || d == 1;
    parts.push_back(ops::slice(builder,
                               fmt::format("{}.{}", name, d),
                               states,
                               {d, reverse ? 0 : all[1] - 1, 0, 0},
                               {1, 1, 1, 1},
                               {1, 1, all[2], all[3]}));
  }
  const TensorId joined =
      parts.size() == 1 ? parts[0] : ops::concat(builder, name + ".joined", parts, 0);
  return ops::reshape(builder, name, joined, {all[0], all[2], all[3]});
}

void lower_recurrent(Lowering& lowering, const Node& node) {
  shape_of(lowering.value(node.input(0)));  // throws if the input is empty
  const graph::RecurrentAttributes attributes = {cell_of(node), direction_of(node)};
  check(lowering, node);
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  ops::RecurrentInputs inputs;
  inputs.x = by_time(lowering, node, node.input(0));
  inputs.initial_h = state_of(lowering, node, node.input(5));
  if (node.op == "LSTM") inputs.initial_c = state_of(lowering, node, node.input(6));
  const bool steps = needs_steps(lowering, node);
  if (!steps) {
    inputs.w = weight_of(lowering, node.input(1));
    inputs.r = weight_of(lowering, node.input(2));
    if (node.input(3) >= 0 && filling_of(lowering.readers().origin(node.input(3))) != 0)
      inputs.bias = weight_of(lowering, node.input(3));
  }
  const auto [y, cells] = steps ? recurrent_in_steps(lowering, node, inputs, attributes)
                                : ops::recurrent(builder, name, inputs, attributes);
  const bool batch_first = is_batch_first(node);
  if (node.output(0) >= 0)
    lowering.layouts().set_transposed(
        node.output(0),
        y,
        batch_first ? std::vector<int>{2, 1, 0, 3} : std::vector<int>{1, 0, 2, 3});
  for (const auto& [index, states, what] :
       {std::tuple(size_t{1}, y, ".last"), std::tuple(size_t{2}, cells, ".last_cells")}) {
    const int output = node.output(index);
    if (output < 0 || !lowering.readers().has_reader(output)) continue;
    const TensorId last = last_states(lowering, name + what, states, attributes.direction);
    if (batch_first)
      lowering.layouts().set_transposed(output, last, {1, 0, 2});
    else
      lowering.layouts().set(output, last);
  }
}

constexpr NodeType kNodes[] = {
    {"LSTM", rule_recurrent<4>, lower_recurrent},
    {"GRU", rule_recurrent<3>, lower_recurrent},
    {"RNN", rule_recurrent<1>, lower_recurrent},
};

}  // namespace

std::span<const NodeType> recurrence_nodes() { return kNodes; }

}  // namespace lockstep::onnx

// Recurrent layers: LSTM, GRU, RNN. Rules only, no evaluators.

#include <string>

#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

void require_extents(const NodeView& node, size_t index, const Extents& expected) {
  if (node.has(index) && node.extents(index) != expected)
    node.refuse("its input {} has extents {}; must have {}",
                index,
                to_string(node.extents(index)),
                to_string(expected));
}

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
  require_extents(node, 1, {directions, kGates * hidden, input[2]});
  require_extents(node, 2, {directions, kGates * hidden, hidden});
  require_extents(node, 3, {directions, 2 * kGates * hidden});
  require_extents(node, 4, {batch});
  const Extents state =
      batch_first ? Extents{batch, directions, hidden} : Extents{directions, batch, hidden};
  require_extents(node, 5, state);
  require_extents(node, 6, state);
  require_extents(node, 7, {directions, 3 * hidden});
  const ElementType type = node.type(0);
  const Extents output = batch_first ? Extents{batch, length, directions, hidden}
                                     : Extents{length, directions, batch, hidden};
  return {{type, output}, {type, state}, {type, state}};
}

constexpr Op kOps[] = {
    {"LSTM", rule_recurrent<4>},
    {"GRU", rule_recurrent<3>},
    {"RNN", rule_recurrent<1>},
};

}  // namespace

std::span<const Op> recurrence_ops() { return kOps; }

}  // namespace lockstep::onnx

// Ops on sequences are resolved at bind time: the binder tracks a sequence as a list of values. The
// network keeps only ordinary nodes, such as Split and Concat.

#include "models/onnx/bind/binder.h"

namespace lockstep::onnx {
namespace {

// The opset of the nodes that replace sequence ops.
constexpr int64_t kOpset = 13;

}  // namespace

Node Binder::node_like(const Node& like,
                       const char* op,
                       std::vector<int> inputs,
                       std::vector<int> outputs) {
  Node node;
  node.op = op;
  node.opset = kOpset;
  node.name = like.name;
  node.scope = like.scope;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

int Binder::new_value(const std::string& name) {
  network_.values.emplace_back();
  network_.values.back().name = name;
  defined_.push_back(false);
  return static_cast<int>(network_.values.size()) - 1;
}

int Binder::new_constant(const std::string& name, Array array) {
  const int number = new_value(name);
  Value& v = value(number);
  v.array = std::move(array);
  v.type = v.array.type;
  v.extents = v.array.extents;
  v.kind = ValueKind::kConstant;
  defined_[static_cast<size_t>(number)] = true;
  return number;
}

Binder::Sequence& Binder::sequence(const NodeView& view, size_t input) {
  const auto found = sequences_.find(view.node().input(input));
  if (found == sequences_.end())
    view.refuse("its input {} is not a sequence whose values are known at bind time", input);
  return found->second;
}

size_t Binder::sequence_index(const NodeView& view,
                              size_t input,
                              int64_t end,
                              size_t length) const {
  const auto count = static_cast<int64_t>(length);
  int64_t index = view.has(input) ? view.known_integer(input) : end;
  if (index < -count || index > end)
    view.refuse("index {} is outside a sequence of {} values", index, length);
  if (index < 0) index += count;
  return static_cast<size_t>(index);
}

void Binder::copy_value(int from, int to, const Node& like) {
  add_computation(node_like(like, "Identity", {from}, {to}));
}

void Binder::split_to_sequence(const Node& node) {
  const NodeView view(node, network_.values);
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  const int64_t extent = view.extents(0)[axis];
  std::vector<int64_t> parts;
  const bool each = !view.has(1);
  if (each || view.rank(1) == 0) {
    const int64_t part = each ? 1 : view.known_integer(1);
    if (part < 1) view.refuse("splits into parts of {}; must be 1 or more", part);
    if (extent / part > kMaxElements >> 26) view.refuse("{} parts are too many", extent / part);
    for (int64_t rest = extent; rest > 0; rest -= part) parts.push_back(std::min(part, rest));
  } else {
    parts = view.known_integers(1);
  }
  const bool squeeze = each && view.integer("keepdims", 1) == 0;
  const std::string name = value(node.output(0)).name;
  const int number = node.output(0);
  Sequence split;
  for (size_t i = 0; i < parts.size(); ++i)
    split.push_back(new_value(fmt::format("{}.{}", name, i)));
  const int lengths = new_constant(name + ".split", list_of(parts));
  if (!parts.empty()) {
    Node made = node_like(node, "Split", {node.input(0), lengths}, split);
    made.attributes["axis"] = static_cast<int64_t>(axis);
    add_computation(made);
  }
  if (squeeze)
    change_axis(node, "Squeeze", ".squeezed", name + ".axis", static_cast<int64_t>(axis), split);
  sequences_[number] = std::move(split);
}

void Binder::change_axis(const Node& like,
                         const char* op,
                         const char* suffix,
                         const std::string& axes_name,
                         int64_t axis,
                         Sequence& parts) {
  const int axes = new_constant(axes_name, list_of({axis}));
  for (int& part : parts) {
    const int changed = new_value(value(part).name + suffix);
    add_computation(node_like(like, op, {part, axes}, {changed}));
    part = changed;
  }
}

void Binder::concat_from_sequence(const Node& node) {
  Sequence parts = sequence(NodeView(node, network_.values), 0);
  const int64_t axis = node.integer("axis", 0);
  if (node.integer("new_axis", 0) != 0)
    change_axis(
        node, "Unsqueeze", ".unsqueezed", value(node.output(0)).name + ".axis", axis, parts);
  if (parts.empty()) NodeView(node, network_.values).refuse("the sequence is empty");
  Node made = node_like(node, "Concat", parts, node.outputs);
  made.attributes["axis"] = axis;
  add_computation(made);
}

bool Binder::add_of_sequence(const Node& node) {
  if (!node.domain.empty()) return false;
  const NodeView view(node, network_.values);
  if (node.op == "Identity" && node.output(0) >= 0 && sequences_.count(node.input(0)) > 0) {
    sequences_[node.output(0)] = Sequence(sequences_.at(node.input(0)));
    return true;
  }
  if (node.op.find("Sequence") == std::string::npos || node.op == "SequenceMap") return false;
  if (node.outputs.size() != 1 || node.output(0) < 0)
    view.refuse("has {} outputs; must have 1", node.outputs.size());
  if (node.op == "SequenceConstruct" || node.op == "SequenceEmpty") {
    require_inputs(node);
    sequences_[node.output(0)] = node.inputs;
  } else if (node.op == "SplitToSequence") {
    require_inputs(node);
    split_to_sequence(node);
  } else if (node.op == "ConcatFromSequence") {
    concat_from_sequence(node);
  } else if (node.op == "SequenceAt") {
    const Sequence& from = sequence(view, 0);
    const auto last = static_cast<int64_t>(from.size()) - 1;
    copy_value(from[sequence_index(view, 1, last, from.size())], node.output(0), node);
  } else if (node.op == "SequenceInsert") {
    Sequence result = sequence(view, 0);
    const auto end = static_cast<int64_t>(result.size());
    const size_t index = sequence_index(view, 2, end, result.size());
    result.insert(result.begin() + static_cast<int64_t>(index), node.input(1));
    sequences_[node.output(0)] = std::move(result);
  } else if (node.op == "SequenceErase") {
    Sequence result = sequence(view, 0);
    const auto last = static_cast<int64_t>(result.size()) - 1;
    const size_t index = sequence_index(view, 1, last, result.size());
    result.erase(result.begin() + static_cast<int64_t>(index));
    sequences_[node.output(0)] = std::move(result);
  } else if (node.op == "SequenceLength") {
    const auto length = static_cast<int64_t>(sequence(view, 0).size());
    Value& output = value(node.output(0));
    output.array = array_of_int64({}, {length});
    output.type = ElementType::kInt64;
    output.kind = ValueKind::kConstant;
    defined_[static_cast<size_t>(node.output(0))] = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace lockstep::onnx

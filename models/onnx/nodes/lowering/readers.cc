#include "models/onnx/nodes/lowering/readers.h"

#include <algorithm>

namespace lockstep::onnx {
namespace {

// Whether the node leaves its elements as they are in the graph, where all floating-point types are
// the compute type and all integer types are i32.
bool is_copy(const Node& node, const Value& from, const Value& to) {
  if (!node.domain.empty()) return false;
  if (node.op == "Reshape" || node.op == "Expand" || node.op == "Flatten")
    return from.extents == to.extents && from.type == to.type;
  return node.op == "Identity" || ((node.op == "Cast" || node.op == "CastLike") &&
                                   is_floating(from.type) == is_floating(to.type) &&
                                   is_integer(from.type) == is_integer(to.type));
}

bool is_plain_transpose(const Node& node, size_t rank) {
  return node.op == "Transpose" && rank == 2 &&
         node.integers("perm", {1, 0}) == std::vector<int64_t>{1, 0};
}

}  // namespace

bool stops_gradient(const Node& node, const Value& to) {
  return node.detached && is_floating(to.type);
}

Readers::Readers(const Network& network)
    : network_(network),
      sources_(network.values.size()),
      origins_(numbers_from<int>(network.values.size())),
      readers_(network.values.size()),
      producers_(producers_of(network)),
      learns_(network.values.size(), false) {
  for (size_t i = 0; i < network.values.size(); ++i) {
    if (network.values[i].kind != ValueKind::kParameter) continue;
    sources_[i] = {static_cast<int>(i), false};
    learns_[i] = true;
  }
  for (const Node& node : network.nodes) trace(node);
}

// Records the readers of the node's inputs, and the origin and source of its output.
void Readers::trace(const Node& node) {
  const bool known = node.input(0) >= 0 && node.output(0) >= 0;
  const bool stops = known && stops_gradient(node, value(node.output(0)));
  const bool copies = known && !stops && is_copy(node, value(node.input(0)), value(node.output(0)));
  for (const int input : node.inputs) {
    if (input < 0) continue;
    if (learns(input) && !stops)
      for (const int output : node.outputs)
        if (output >= 0 && is_floating(value(output).type))
          learns_[static_cast<size_t>(output)] = true;
    std::vector<const Node*>& readers = readers_[static_cast<size_t>(origin_of(input))];
    if (!copies && (readers.empty() || readers.back() != &node)) readers.push_back(&node);
  }
  if (!known) return;
  const auto output = static_cast<size_t>(node.output(0));
  const ParameterSource source = source_of(node.input(0));
  if (copies) {
    sources_[output] = source;
    origins_[output] = origin_of(node.input(0));
  } else if (source.value >= 0 && is_plain_transpose(node, value(source.value).extents.size())) {
    sources_[output] = {source.value, !source.transposed};
  }
}

const Node* Readers::only_reader(int number) const {
  const std::vector<const Node*>& readers = readers_of(number);
  return readers.size() == 1 && !is_output(origin_of(number)) ? readers[0] : nullptr;
}

bool Readers::is_output(int number) const {
  return std::ranges::any_of(network_.outputs,
                             [&](int output) { return origin_of(output) == number; });
}

bool Readers::is_copied(const Node& node) const {
  const int output = node.output(0);
  return output >= 0 && (origin_of(output) != output || source_of(output).value >= 0);
}

}  // namespace lockstep::onnx

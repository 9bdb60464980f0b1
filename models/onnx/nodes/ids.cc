#include "models/onnx/nodes/ids.h"

#include <algorithm>

#include "models/onnx/read/constants.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

bool only_moves(const Node& node, const std::vector<Value>& values) {
  if (node.input(0) < 0 || node.output(0) < 0) return false;
  const auto of_integers = [&](int number) {
    return is_integer(values[static_cast<size_t>(number)].type);
  };
  const bool casts = is_op(&node, "Cast") || is_op(&node, "CastLike");
  return (casts && of_integers(node.input(0)) && of_integers(node.output(0))) ||
         moves_elements(node);
}

}  // namespace

bool moves_elements(const Node& node) {
  static const std::vector<std::string> kMoving = words_of(
      "Expand Flatten Gather GatherElements GatherND Identity Reshape Slice Squeeze Tile "
      "Transpose Unsqueeze");
  return node.domain.empty() && std::ranges::count(kMoving, node.op) > 0;
}

std::vector<int> sources_of_elements(const Network& network) {
  std::vector<int> sources = numbers_from<int>(network.values.size());
  for (const Node& node : network.nodes) {
    if (only_moves(node, network.values))
      sources[static_cast<size_t>(node.output(0))] = sources[static_cast<size_t>(node.input(0))];
  }
  return sources;
}

int64_t fewest_rows(const Network& network, int input) {
  const std::vector<int> sources = sources_of_elements(network);
  int64_t smallest = 0;
  for (const Node& node : network.nodes) {
    if (node.op != "Gather" || !node.domain.empty() || node.integer("axis", 0) != 0) continue;
    if (sources[static_cast<size_t>(node.input(1))] != input) continue;
    const int64_t rows = network.values[static_cast<size_t>(node.input(0))].extents[0];
    smallest = smallest == 0 ? rows : std::min(smallest, rows);
  }
  return smallest;
}

}  // namespace lockstep::onnx

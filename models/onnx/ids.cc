#include "models/onnx/ids.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "models/onnx/constants.h"

namespace lockstep::onnx {
namespace {

bool only_moves(const Node& node, const std::vector<Value>& values) {
  if (node.input(0) < 0 || node.output(0) < 0) return false;
  const auto is_integer = [&](int number) {
    const ElementType type = values[static_cast<size_t>(number)].type;
    return !is_floating(type) && type != ElementType::kBool;
  };
  const bool casts = is_op(&node, "Cast") || is_op(&node, "CastLike");
  return (casts && is_integer(node.input(0)) && is_integer(node.output(0))) || moves_elements(node);
}

}  // namespace

bool moves_elements(const Node& node) {
  static const std::set<std::string_view> kMoving = {"Expand",
                                                     "Flatten",
                                                     "Gather",
                                                     "GatherElements",
                                                     "GatherND",
                                                     "Identity",
                                                     "Reshape",
                                                     "Slice",
                                                     "Squeeze",
                                                     "Tile",
                                                     "Transpose",
                                                     "Unsqueeze"};
  return node.domain.empty() && kMoving.count(node.op) > 0;
}

std::vector<int> sources_of_elements(const Network& network) {
  std::vector<int> sources(network.values.size());
  std::iota(sources.begin(), sources.end(), 0);
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

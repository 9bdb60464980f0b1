#include "models/onnx/bind/gradient_paths.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace lockstep::onnx {
namespace {

// Whether the node passes a gradient of its floating-point outputs to its input `index`.
bool carries(const Node& node, size_t index) {
  static const std::set<std::string_view> kSteps = {"Bernoulli",
                                                    "Ceil",
                                                    "EyeLike",
                                                    "Floor",
                                                    "RandomNormalLike",
                                                    "RandomUniformLike",
                                                    "Round",
                                                    "Sign"};
  // For these ops only the inputs before this index have a gradient.
  static const std::map<std::string_view, size_t> kOnlyBefore = {{"BatchNormalization", 3},
                                                                 {"CastLike", 1},
                                                                 {"Dropout", 1},
                                                                 {"Expand", 1},
                                                                 {"Reshape", 1},
                                                                 {"Resize", 1},
                                                                 {"Upsample", 1}};
  if (node.detached || !node.domain.empty() || kSteps.contains(node.op)) return false;
  if (node.op == "Where") return index > 0;
  const auto found = kOnlyBefore.find(node.op);
  return found == kOnlyBefore.end() || index < found->second;
}

}  // namespace

void hold_unreached(Network& network, const std::vector<size_t>& outputs) {
  std::vector<bool> reached(network.values.size(), false);
  const auto reach = [&](int number) {
    if (number < 0) return;
    const auto at = static_cast<size_t>(number);
    reached[at] = reached[at] || is_floating(network.values[at].type);
  };
  for (size_t index = 0; index < network.outputs.size(); ++index)
    if (outputs.empty() || std::ranges::count(outputs, index) > 0) reach(network.outputs[index]);
  for (auto node = network.nodes.rbegin(); node != network.nodes.rend(); ++node) {
    const bool any = std::ranges::any_of(node->outputs, [&](int output) {
      return output >= 0 && reached[static_cast<size_t>(output)];
    });
    for (size_t index = 0; any && index < node->inputs.size(); ++index)
      if (carries(*node, index)) reach(node->inputs[index]);
  }
  for (size_t number = 0; number < network.values.size(); ++number) {
    Value& value = network.values[number];
    if (value.kind == ValueKind::kParameter && !reached[number]) value.kind = ValueKind::kConstant;
  }
}

}  // namespace lockstep::onnx

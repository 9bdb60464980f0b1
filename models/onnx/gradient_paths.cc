#include "models/onnx/gradient_paths.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace lockstep::onnx {
namespace {

// Whether a gradient of a number that the node computes comes back to its input at `place`. Nothing comes back
// from whole numbers and truth.
bool carries(const Node& node, size_t place) {
  static const std::set<std::string_view> kSteps = {"Bernoulli",
                                                    "Ceil",
                                                    "EyeLike",
                                                    "Floor",
                                                    "RandomNormalLike",
                                                    "RandomUniformLike",
                                                    "Round",
                                                    "Sign"};
  // Inputs from this one on have no gradient.
  static const std::map<std::string_view, size_t> kOnlyBefore = {{"BatchNormalization", 3},
                                                                 {"CastLike", 1},
                                                                 {"Dropout", 1},
                                                                 {"Expand", 1},
                                                                 {"Reshape", 1},
                                                                 {"Resize", 1},
                                                                 {"Upsample", 1}};
  if (node.detached || !node.domain.empty() || kSteps.contains(node.op)) return false;
  if (node.op == "Where") return place > 0;
  const auto found = kOnlyBefore.find(node.op);
  return found == kOnlyBefore.end() || place < found->second;
}

}  // namespace

void hold_unreached(Network& network, const std::vector<size_t>& outputs) {
  std::vector<bool> reached(network.values.size(), false);
  const auto reach = [&](int number) {
    if (number < 0) return;
    const auto at = static_cast<size_t>(number);
    reached[at] = reached[at] || is_floating(network.values[at].type);
  };
  for (size_t place = 0; place < network.outputs.size(); ++place)
    if (outputs.empty() || std::ranges::count(outputs, place) > 0) reach(network.outputs[place]);
  for (auto node = network.nodes.rbegin(); node != network.nodes.rend(); ++node) {
    const bool any = std::ranges::any_of(node->outputs, [&](int output) {
      return output >= 0 && reached[static_cast<size_t>(output)];
    });
    for (size_t place = 0; any && place < node->inputs.size(); ++place)
      if (carries(*node, place)) reach(node->inputs[place]);
  }
  for (size_t number = 0; number < network.values.size(); ++number) {
    Value& value = network.values[number];
    if (value.kind == ValueKind::kParameter && !reached[number]) value.kind = ValueKind::kConstant;
  }
}

}  // namespace lockstep::onnx

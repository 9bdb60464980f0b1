#include "models/onnx/bind/untrainable.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

const std::set<std::string_view> kControlFlow = {"If", "Loop", "Scan", "SequenceMap"};

const std::set<std::string_view> kQuantized = {"DequantizeLinear",
                                               "QuantizeLinear",
                                               "DynamicQuantizeLinear",
                                               "QLinearConv",
                                               "QLinearMatMul",
                                               "ConvInteger",
                                               "MatMulInteger"};

const std::set<std::string_view> kOfData = {"Unique", "Compress", "NonMaxSuppression"};

// Ops whose outputs depend only on the extents of their inputs.
const std::set<std::string_view> kOfExtents = {"EyeLike", "Shape", "Size"};

// Whether it is a sequence op that bind() resolves.
bool is_of_sequences(const Node& node) {
  return node.domain.empty() && node.op.find("Sequence") != std::string::npos &&
         node.op != "SequenceMap";
}

// For each value, whether it depends on the network's inputs or is random.
std::vector<bool> varying(const File& file) {
  std::vector<bool> varies(file.values.size(), false);
  for (const int input : file.inputs) varies[static_cast<size_t>(input)] = true;
  for (const Node& node : file.nodes) {
    if (kOfExtents.count(node.op) > 0) continue;
    const bool any =
        node.op.starts_with("Random") || std::ranges::any_of(node.inputs, [&](int input) {
          return input >= 0 && varies[static_cast<size_t>(input)];
        });
    for (const int output : node.outputs)
      if (any && output >= 0) varies[static_cast<size_t>(output)] = true;
  }
  return varies;
}

// For each value, whether these outputs depend on it.
std::vector<bool> needed(const File& file, const std::vector<size_t>& outputs) {
  std::vector<bool> needs(file.values.size(), false);
  for (const size_t index : outputs) needs[static_cast<size_t>(file.outputs[index])] = true;
  for (auto node = file.nodes.rbegin(); node != file.nodes.rend(); ++node) {
    const bool any = std::ranges::any_of(node->outputs, [&](int output) {
      return output >= 0 && needs[static_cast<size_t>(output)];
    });
    for (const int input : node->inputs)
      if (any && input >= 0) needs[static_cast<size_t>(input)] = true;
  }
  return needs;
}

}  // namespace

std::string why_unknown(const Node& node) {
  if (!node.domain.empty())
    return fmt::format("ops of domain {} are not supported; export with ONNX's standard ops only",
                       node.domain);
  if (kControlFlow.count(node.op) > 0)
    return "control flow is not supported; export with static control flow: torch.onnx.export(..., "
           "dynamo=True) of a model whose branches and loops do not depend on tensors";
  if (kQuantized.count(node.op) > 0)
    return "quantized networks cannot be trained; export the network before it is quantized";
  if (kOfData.count(node.op) > 0)
    return "the extents of its output depend on data; they must be known before training starts";
  return "the op is not supported";
}

std::vector<std::string> unsupported_ops(const File& file, const std::vector<size_t>& outputs) {
  const std::vector<bool> varies = varying(file), needs = needed(file, outputs);
  std::map<std::pair<std::string, std::string>, size_t> index_of;  // by domain and op
  std::vector<std::pair<std::string, int>> found;  // and how many more nodes have it
  for (const Node& node : file.nodes) {
    if (is_of_sequences(node)) continue;
    const bool known = type_of(node) != nullptr;
    const bool passes = node.domain.empty() && node.op == "Identity";
    const bool trains = std::ranges::any_of(node.outputs, [&](int output) {
      return output >= 0 && varies[static_cast<size_t>(output)] &&
             needs[static_cast<size_t>(output)];
    });
    if (known && (!trains || passes || lower_of(node) != nullptr)) continue;
    const auto [at, first] = index_of.emplace(std::pair(node.domain, node.op), found.size());
    if (first)
      found.emplace_back(
          fmt::format(
              "{}: {}", node.description(), known ? "the op cannot be trained" : why_unknown(node)),
          0);
    else
      ++found[at->second].second;
  }
  std::vector<std::string> texts;
  for (const auto& [text, more] : found)
    texts.push_back(
        more == 0 ? text
                  : fmt::format("{} (and {} more node{} of this op)", text, more, plural(more)));
  return texts;
}

namespace {

// Whether the node passes a gradient of its floating-point outputs to its input `index`.
bool carries(const Node& node, size_t index) {
  static const std::vector<std::string> kSteps =
      words_of("Bernoulli Ceil EyeLike Floor RandomNormalLike RandomUniformLike Round Sign");
  // For these ops only the inputs before this index have a gradient.
  static const std::map<std::string_view, size_t> kOnlyBefore = {{"BatchNormalization", 3},
                                                                 {"CastLike", 1},
                                                                 {"Dropout", 1},
                                                                 {"Expand", 1},
                                                                 {"Reshape", 1},
                                                                 {"Resize", 1},
                                                                 {"Upsample", 1}};
  if (node.detached || !node.domain.empty() || std::ranges::count(kSteps, node.op) > 0)
    return false;
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

#include "models/onnx/unsupported_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "models/onnx/lowering/lowering.h"
#include "models/onnx/rules/table.h"

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

const std::set<std::string_view> kLosses = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"};

const std::set<std::string_view> kOfData = {"Unique", "Compress", "NonMaxSuppression"};

// Whose outputs depend on the extents of their inputs alone.
const std::set<std::string_view> kOfExtents = {"EyeLike", "Shape", "Size"};

// Which bind() resolves.
bool is_of_sequences(const Node& node) {
  return node.domain.empty() && node.op.find("Sequence") != std::string::npos &&
         node.op != "SequenceMap";
}

// By value: whether it depends on the network's inputs, or is drawn.
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

// By value: whether the outputs need it.
std::vector<bool> needed(const File& file, const std::vector<size_t>& outputs) {
  std::vector<bool> needs(file.values.size(), false);
  for (const size_t place : outputs) needs[static_cast<size_t>(file.outputs[place])] = true;
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
    return fmt::format("ops of the domain {} are not known; export with ops of ONNX's own alone",
                       node.domain);
  if (kControlFlow.count(node.op) > 0)
    return "control flow is not known; export with static control flow: torch.onnx.export(..., "
           "dynamo=True) of a model whose branches and loops do not depend on tensors";
  if (kQuantized.count(node.op) > 0)
    return "quantized networks do not train; export the network before it is quantized";
  if (kLosses.count(node.op) > 0)
    return "a loss is no part of a network here; export the network without its loss";
  if (kOfData.count(node.op) > 0)
    return "the extents of its output depend on data; they must be known before the start";
  return "the op is not known";
}

std::vector<std::string> unsupported_ops(const File& file, const std::vector<size_t>& outputs) {
  const std::vector<bool> varies = varying(file), needs = needed(file, outputs);
  std::map<std::pair<std::string, std::string>, size_t> place_of;  // by domain and op
  std::vector<std::pair<std::string, int>> found;                  // with how many more there are
  for (const Node& node : file.nodes) {
    if (is_of_sequences(node)) continue;
    const bool known = find_op(node) != nullptr;
    const bool passes = node.domain.empty() && node.op == "Identity";
    const bool trains = std::ranges::any_of(node.outputs, [&](int output) {
      return output >= 0 && varies[static_cast<size_t>(output)] &&
             needs[static_cast<size_t>(output)];
    });
    if (known && (!trains || passes || lower_of(node) != nullptr)) continue;
    const auto [at, first] = place_of.emplace(std::pair(node.domain, node.op), found.size());
    if (first)
      found.emplace_back(
          fmt::format("{}: {}",
                      node.description(),
                      known ? "cannot be trained: there is no such op here" : why_unknown(node)),
          0);
    else
      ++found[at->second].second;
  }
  std::vector<std::string> texts;
  for (const auto& [text, more] : found)
    texts.push_back(
        more == 0
            ? text
            : fmt::format("{} (and {} more node{} of this op)", text, more, more == 1 ? "" : "s"));
  return texts;
}

}  // namespace lockstep::onnx

#include "models/onnx/samples/node_labels.h"

#include "models/onnx/nodes/node_type.h"

namespace lockstep::onnx {
namespace {

// The labels of an elementwise op that reads the first `inputs` inputs.
std::vector<Labels> by_element(const NodeLabels& node, size_t inputs) {
  Labels made = uniform(node.out(), kNoSample);
  for (size_t index = 0; index < inputs; ++index)
    made = joined(made, node.in(index), node.out(), node.number());
  return std::vector<Labels>(node.node().outputs.size(), made);
}

std::vector<Labels> label_all(const NodeLabels& node) {
  Label label = kNoSample;
  for (size_t index = 0; index < node.node().inputs.size(); ++index)
    for (const Label other : node.in(index).labels) label = joined(label, other, node.number());
  std::vector<Labels> made;
  for (size_t index = 0; index < node.node().outputs.size(); ++index)
    made.push_back(node.node().outputs[index] < 0 ? Labels{} : uniform(node.out(index), label));
  return made;
}

}  // namespace

std::vector<Labels> labels_of_outputs(const NodeLabels& node) {
  const std::string& op = node.node().op;
  if (!node.node().domain.empty()) return label_all(node);
  for (const auto find : {movement_label_rule, indexing_label_rule, layer_label_rule})
    if (const LabelRule rule = find(op)) return rule(node);
  // The other inputs are a type, a ratio, or the training mode.
  if (op == "CastLike" || op == "Dropout" || op == "Bernoulli") return by_element(node, 1);
  return formula_of(op) != nullptr ? by_element(node, node.node().inputs.size()) : label_all(node);
}

}  // namespace lockstep::onnx

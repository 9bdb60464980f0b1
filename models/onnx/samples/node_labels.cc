#include "models/onnx/samples/node_labels.h"

#include "models/onnx/lowering/pointwise_functions.h"

namespace lockstep::onnx {
namespace {

// Element by element, of the first inputs.
std::vector<Labels> by_element(const NodeLabels& node, size_t inputs) {
  Labels made = uniform(node.out(), kNoSample);
  for (size_t place = 0; place < inputs; ++place)
    made = joined(made, node.in(place), node.out(), node.number());
  return std::vector<Labels>(node.node().outputs.size(), made);
}

std::vector<Labels> of_all(const NodeLabels& node) {
  Label label = kNoSample;
  for (size_t place = 0; place < node.node().inputs.size(); ++place)
    for (const Label other : node.in(place).labels) label = joined(label, other, node.number());
  std::vector<Labels> made;
  for (size_t place = 0; place < node.node().outputs.size(); ++place)
    made.push_back(node.node().outputs[place] < 0 ? Labels{} : uniform(node.out(place), label));
  return made;
}

}  // namespace

std::vector<Labels> labels_of_outputs(const NodeLabels& node) {
  const std::string& op = node.node().op;
  if (!node.node().domain.empty()) return of_all(node);
  for (const auto find : {movement_label_rule, indexing_label_rule, layer_label_rule})
    if (const LabelRule rule = find(op)) return rule(node);
  // Their other inputs say a type, a share, or whether it is a training.
  if (op == "CastLike" || op == "Dropout" || op == "Bernoulli") return by_element(node, 1);
  return pointwise_of(op) != nullptr ? by_element(node, node.node().inputs.size()) : of_all(node);
}

}  // namespace lockstep::onnx

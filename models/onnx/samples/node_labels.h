#pragma once
// Propagates labels from the inputs of a node to its outputs.

#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/nodes/node_view.h"
#include "models/onnx/samples/labels.h"

namespace lockstep::onnx {

// Bounds for each element of a value, as far as they are known at bind time. Used for indices that
// a network computes.
struct Bounds {
  // For each element, row-major. Empty if nothing is known.
  std::vector<double> min, max;

  bool known() const { return !min.empty(); }
};

Bounds bounds_of(const Network& network, int value);

// A node and the labels of its inputs.
class NodeLabels {
 public:
  // `number` is the node's index in Network::nodes. Borrows all arguments.
  NodeLabels(const Network& network, int number, const std::vector<Labels>& labels)
      : network_(network),
        number_(number),
        labels_(labels),
        node_(network.nodes[static_cast<size_t>(number)]),
        view_(node_, network.values) {}

  const Node& node() const { return node_; }
  const NodeView& view() const { return view_; }
  int number() const { return number_; }
  // The labels of an input; kNoSample if it is absent.
  Labels in(size_t index) const {
    const int value = node_.input(index);
    return value < 0 ? uniform({}, kNoSample) : labels_[static_cast<size_t>(value)];
  }
  const Extents& out(size_t index = 0) const {
    return network_.values[static_cast<size_t>(node_.outputs[index])].extents;
  }
  // Bounds for the elements of an input.
  Bounds bounds(size_t index) const { return bounds_of(network_, node_.input(index)); }

 private:
  const Network& network_;
  int number_;
  const std::vector<Labels>& labels_;
  const Node& node_;
  NodeView view_;
};

// The labels of each output; those of absent outputs are undefined. An op without a rule mixes all
// its inputs.
std::vector<Labels> labels_of_outputs(const NodeLabels& node);

// The rule of an op, by family like the rows of nodes/node_type.h; null if there is none.
using LabelRule = std::vector<Labels> (*)(const NodeLabels& node);
LabelRule movement_label_rule(const std::string& op);
LabelRule indexing_label_rule(const std::string& op);
LabelRule layer_label_rule(const std::string& op);

}  // namespace lockstep::onnx

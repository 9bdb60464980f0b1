#pragma once
// How the labels of a node's outputs follow from those of its inputs.

#include <functional>
#include <vector>

#include "models/onnx/rules/node_view.h"
#include "models/onnx/samples/bounds.h"
#include "models/onnx/samples/labels.h"

namespace lockstep::onnx {

// A node and the labels of its inputs.
class NodeLabels {
 public:
  // `number`: its place in Network::nodes. Borrows all.
  NodeLabels(const Network& network, int number, const std::vector<Labels>& labels)
      : network_(network),
        number_(number),
        labels_(labels),
        node_(network.nodes[static_cast<size_t>(number)]),
        view_(node_, network.values) {}

  const Node& node() const { return node_; }
  const NodeView& view() const { return view_; }
  int number() const { return number_; }
  // If the input is absent, it is of no sample.
  Labels in(size_t place) const {
    const int value = node_.input(place);
    return value < 0 ? uniform({}, kNoSample) : labels_[static_cast<size_t>(value)];
  }
  const Extents& out(size_t place = 0) const {
    return network_.values[static_cast<size_t>(node_.outputs[place])].extents;
  }
  // Between what the elements of an input lie.
  Bounds bounds(size_t place) const { return bounds_of(network_, node_.input(place)); }

 private:
  const Network& network_;
  int number_;
  const std::vector<Labels>& labels_;
  const Node& node_;
  NodeView view_;
};

// The labels of each output; those of outputs that are absent do not count. An op without a rule is taken to mix all
// that it reads.
std::vector<Labels> labels_of_outputs(const NodeLabels& node);

// By family, as rules/table.h has them; null if there is none.
using LabelRule = std::vector<Labels> (*)(const NodeLabels& node);
LabelRule movement_label_rule(const std::string& op);
LabelRule indexing_label_rule(const std::string& op);
LabelRule layer_label_rule(const std::string& op);

}  // namespace lockstep::onnx

#pragma once
// Which node computes a value, which nodes read it, and of which value it is a copy. Computed once
// from a network.

#include <vector>

#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// A parameter, or its transpose.
struct ParameterSource {
  int value = -1;  // below 0: none
  bool transposed = false;
};

// Whether the node is a copy that passes no gradient.
bool stops_gradient(const Node& node, const Value& to);

class Readers {
 public:
  explicit Readers(const Network& network);  // borrowed

  const Network& network() const { return network_; }
  NodeView view(const Node& node) const { return {node, network_.values}; }
  const Value& value(int number) const { return network_.values[static_cast<size_t>(number)]; }
  // The parameter that a value is, or whose transpose it is.
  ParameterSource source_of(int number) const { return sources_[static_cast<size_t>(number)]; }
  // The value of which this one is a copy, through nodes that leave elements as they are; else
  // itself.
  int origin_of(int number) const { return origins_[static_cast<size_t>(number)]; }
  const Value& origin(int number) const { return value(origin_of(number)); }
  // Whether a gradient may reach the value.
  bool learns(int number) const { return learns_[static_cast<size_t>(number)]; }
  // The node that computes the value, or that of which it is a copy; null if there is none.
  const Node* producer(int number) const {
    return producers_[static_cast<size_t>(origin_of(number))];
  }
  // All nodes that read the value, or a copy of it.
  const std::vector<const Node*>& readers_of(int number) const {
    return readers_[static_cast<size_t>(origin_of(number))];
  }
  // The only node that reads the value; null if there are several or none, or if it is an output.
  const Node* only_reader(int number) const;
  bool is_output(int number) const;
  bool has_reader(int number) const { return !readers_of(number).empty() || is_output(number); }
  // The input of a node of two operands that is not this value.
  int other_input(const Node& node, int number) const {
    return node.input(origin_of(node.input(0)) == number ? 1 : 0);
  }
  // Whether the node's output needs no op: it is a copy, or a parameter or its transpose.
  bool is_copied(const Node& node) const;

 private:
  void trace(const Node& node);

  const Network& network_;
  std::vector<ParameterSource> sources_;           // by value
  std::vector<int> origins_;                       // by value
  std::vector<std::vector<const Node*>> readers_;  // by value
  std::vector<const Node*> producers_;             // by value
  std::vector<bool> learns_;                       // by value
};

}  // namespace lockstep::onnx

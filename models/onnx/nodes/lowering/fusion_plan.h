#pragma once
// Which nodes get no ops of their own. A fused node is skipped, because the op of another node
// computes its outputs; a replaced node gets other ops.
//
// Invariant: an intermediate value of fused nodes gets no tensor, so nothing else may read it (see
// Readers::only_reader()).

#include <functional>
#include <map>
#include <set>

#include "models/onnx/nodes/lowering/readers.h"

namespace lockstep::onnx {

class Lowering;
// Appends the ops of a node.
using Replacement = std::function<void(Lowering& lowering, const Node& node)>;

class FusionPlan {
 public:
  explicit FusionPlan(const Readers& readers) : readers_(readers) {}  // borrowed

  void mark_fused(const Node& node) { fused_.insert(&node); }
  // The node is lowered by itself after all.
  void release(const Node& node) { fused_.erase(&node); }
  bool is_fused(const Node& node) const { return fused_.contains(&node); }
  // Whether a node that is not fused reads the value, or it is an output.
  bool is_read(int number) const;
  // Sets what is appended instead of a node. Called before it is the node's turn.
  void replace(const Node& node, Replacement replacement);
  // Null if the node is not replaced.
  const Replacement* replacement_of(const Node& node) const;

 private:
  const Readers& readers_;
  std::set<const Node*> fused_;
  std::map<const Node*, Replacement> replacements_;
};

// Finds RMS norms that exporters write node by node.
void fuse_nodes(const Readers& readers, FusionPlan& plan);

// If the node, a Reshape, begins a group norm as exporters write it (an instance norm between two
// reshapes, followed by gains and biases), lowers all of it and returns true.
bool lower_as_group_norm(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

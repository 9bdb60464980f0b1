#pragma once
// Lowers the bound network of an ONNX file to ops of a graph.
//
// run() visits the nodes in topological order. For each, the function in the table of node types
// (node_type.h) appends native ops which compute the same. The functions take what they need of:
//
// - Readers: who reads a value, and of which value or parameter it is a copy. Copies need no op.
// - Parameters: the graph's parameters, and how their elements are stored.
// - Layouts: the tensors of values. Elementwise nodes are deferred: their program is appended when
//   the value is requested, or becomes part of the program of the elementwise node that reads it
//   (pointwise.cc).
// - FusionPlan: a function may take over later nodes: the bias after a product, or all nodes of
//   attention. It appends one op, sets the last output, and marks the nodes as fused. Norms that
//   are recognised by their last node are found before the first node is lowered (fusion_plan.h).

#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/lowering/layouts.h"
#include "models/onnx/nodes/lowering/parameters.h"
#include "models/onnx/nodes/lowering/readers.h"
#include "models/onnx/nodes/lowering/token_mask.h"
#include "runtime/graph/builder.h"

namespace lockstep::onnx {

struct LoweringOptions {
  bool synchronised_norms = false;  // batch norms use the statistics of all lanes together
  // By input of the network: its elements are in [0, limit).
  std::map<int, int64_t> limits = {};
  // The inputs of the network that are masks of tokens (N, T): 1 if the token's document in
  // `documents` (N, T) i32 is at least 0, else 0.
  std::vector<int> token_masks = {};
  TensorId documents = kNoTensor;
  // The network in which the masks of attention are analysed: the same with fewer samples, which
  // takes less memory. Null: the network itself.
  const Network* probe = nullptr;
};

class Lowering {
 public:
  // Borrows the network, the builder and the probe. The network's inputs must be set before run().
  Lowering(const Network& network, graph::GraphBuilder& builder, LoweringOptions options = {});
  Lowering(const Lowering&) = delete;

  // Appends the ops of all nodes that have none yet. Throws ConfigError, with Node::description(),
  // for a node whose op is not supported, or one of whose outputs is read but not supported.
  void run();
  // Lowers all nodes that the value depends on, before it is their turn. If `node` is one of them,
  // does nothing and returns false.
  bool lower_early(int number, const Node& node);

  graph::GraphBuilder& builder() const { return builder_; }
  const LoweringOptions& options() const { return options_; }
  const Readers& readers() const { return readers_; }
  Parameters& parameters() { return parameters_; }
  Layouts& layouts() { return layouts_; }
  FusionPlan& fusion() { return fusion_; }
  const Value& value(int number) const { return readers_.value(number); }
  // The node's name, or that of its first output.
  std::string name_of(const Node& node) const;

  // The form of a mask of attention.
  MaskForm mask_form(int number, bool true_hides = false) {
    return token_masks_.form_of(readers_.origin_of(number), true_hides);
  }
  // (N, T) i32: 0 for tokens and -1 for padding.
  TensorId seen_tokens();

  // Called for a node that computes with integers in floats, which only FP32 holds exactly. Throws
  // ConfigError if the graph computes in 16 bits.
  void require_fp32(const Node& node);
  // Why the graph needs FP32; empty: it does not. After run().
  const std::string& reason_for_fp32() const { return reason_for_fp32_; }

 private:
  bool is_done(const Node& node) const {
    return fusion_.is_fused(node) || readers_.is_copied(node);
  }
  void lower(const Node& node);
  void detach(const Node& node);
  [[noreturn]] void refuse_op(const Node& node) const;
  void require_outputs(const Node& node) const;

  graph::GraphBuilder& builder_;
  const LoweringOptions options_;
  const Readers readers_;
  Parameters parameters_;
  Layouts layouts_;
  FusionPlan fusion_;
  TokenMasks token_masks_;
  std::set<const Node*> lowered_;
  TensorId seen_tokens_ = kNoTensor;
  std::string reason_for_fp32_;
};

}  // namespace lockstep::onnx

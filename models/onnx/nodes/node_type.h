#pragma once
// The table of node types: a row for each op of ONNX's standard domain. A row has how to infer the
// types and extents of a node's outputs, how the node becomes native ops, and how to compute the
// outputs if the inputs are known at bind time (constant folding).

#include <span>
#include <string>
#include <vector>

#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

class Formula;
class Lowering;

// Infers the types and extents of the outputs, in their order. May return more outputs than the
// node has. Throws ConfigError for forms of the op that are not supported; the form of the op may
// depend on the node's opset.
using Rule = std::vector<Form> (*)(const NodeView& node);
// Computes the outputs' elements, in the forms `outputs` that the rule returned. All inputs are
// known, or only their types and extents for inputs that are not read: see NodeType::read_inputs.
using Evaluator = std::vector<Array> (*)(const NodeView& node, const std::vector<Form>& outputs);

// Appends the native ops of a node.
using LowerNode = void (*)(Lowering& lowering, const Node& node);

// Appends an elementwise node's function to its program and returns the instruction of the result.
// Throws ConfigError for unsupported forms of the op.
using PointwiseOf = int (*)(Formula& formula);

// How nodes of a type are trained: by a function, or by a formula if the op is elementwise. By
// default, they cannot be trained.
struct Lowered {
  constexpr Lowered() = default;
  constexpr Lowered(LowerNode by) : function(by) {}   // NOLINT: rows name the function
  constexpr Lowered(PointwiseOf by) : formula(by) {}  // NOLINT

  LowerNode function = nullptr;
  PointwiseOf formula = nullptr;
};

struct NodeType {
  const char* name;
  Rule rule;
  Lowered lowered = {};
  Evaluator evaluator = nullptr;  // nullptr: never folded
  size_t read_inputs = SIZE_MAX;  // the evaluator reads elements of only this many first inputs
};

// The row of the node's op, or nullptr if there is none.
const NodeType* type_of(const Node& node);
// The function that lowers the node; nullptr if its op cannot be trained.
LowerNode lower_of(const Node& node);
// The formula of an op of the standard domain; nullptr if it is not elementwise.
PointwiseOf formula_of(const std::string& op);

// The rows by family, one file each.
std::vector<std::span<const NodeType>> all_families();

}  // namespace lockstep::onnx

#pragma once
// The table of ops: how to infer the type and extents of a node's outputs, and how to compute the
// outputs if the inputs are known at bind time (constant folding).

#include <span>
#include <vector>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// Infers the types and extents of the outputs, in their order. May return more outputs than the
// node has.
using Rule = std::vector<Form> (*)(const NodeView& node);
// Computes the outputs' elements, in the forms `outputs` that the rule returned. All inputs are
// known, or only their types and extents for inputs that are not read: see Op::read_inputs.
using Evaluator = std::vector<Array> (*)(const NodeView& node, const std::vector<Form>& outputs);

struct Op {
  const char* name;  // in ONNX's standard domain
  Rule rule;
  Evaluator evaluator = nullptr;  // nullptr: never folded
  size_t read_inputs = SIZE_MAX;  // the evaluator reads elements of only this many first inputs
};

// The entry of the node's op, or nullptr if there is none.
const Op* find_op(const Node& node);

std::vector<std::span<const Op>> all_families();

// The entries of each family, one file each.
std::span<const Op> activation_ops();
std::span<const Op> attention_ops();
std::span<const Op> convolution_ops();
std::span<const Op> creation_ops();
std::span<const Op> elementwise_ops();
std::span<const Op> indexing_ops();
std::span<const Op> movement_ops();
std::span<const Op> normalization_ops();
std::span<const Op> product_ops();
std::span<const Op> random_ops();
std::span<const Op> recurrence_ops();
std::span<const Op> reduction_ops();
std::span<const Op> resizing_ops();
std::span<const Op> slicing_ops();

}  // namespace lockstep::onnx

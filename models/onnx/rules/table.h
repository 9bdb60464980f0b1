#pragma once
// The table of ops: how the type and extents of a node's outputs follow from its inputs, and how its
// outputs are computed where its inputs are known before the start.

#include <span>
#include <vector>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// The outputs' types and extents, in the order of the node's outputs; may give more than the node has.
using Rule = std::vector<Form> (*)(const NodeView& node);
// The outputs' elements. All inputs are known (or only their types and extents, see Op::read_inputs); `outputs` is what the
// rule said. Results must have these forms.
using Evaluator = std::vector<Array> (*)(const NodeView& node, const std::vector<Form>& outputs);

struct Op {
  const char* name;  // in ONNX's own domain
  Rule rule;
  Evaluator evaluator = nullptr;  // nullptr: never computed before the start
  size_t read_inputs = SIZE_MAX;  // of whose elements the evaluator reads: the first so many
};

// The op's row, or nullptr where there is none.
const Op* find_op(const Node& node);

std::vector<std::span<const Op>> all_families();

// The rows of each family, one file each.
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

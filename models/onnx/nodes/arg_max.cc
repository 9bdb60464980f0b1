// ArgMax, ArgMin and TopK.
#include <algorithm>

#include "models/onnx/nodes/lowering/pointwise.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/reductions.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

std::vector<Form> rule_arg(const NodeView& node) {
  const size_t axis = axis_of(node, 0);
  Extents to = node.extents(0);
  if (to[axis] == 0) node.refuse("axis {} has no elements", axis);
  to[axis] = 1;
  if (node.integer("keepdims", 1) == 0) to.erase(to.begin() + static_cast<int64_t>(axis));
  return {{ElementType::kInt64, to}};
}

std::vector<Array> evaluate_arg(const NodeView& node, const std::vector<Form>& outputs) {
  const bool last = node.integer("select_last_index", 0) != 0;
  const double direction = node.node().op == "ArgMax" ? 1 : -1;
  std::vector<bool> axes(node.extents(0).size(), false);
  axes[axis_of(node, 0)] = true;
  const Rows rows = rows_of(node, axes);
  const std::vector<double> values = rows.array.as_double();
  std::vector<int64_t> found(rows.count, 0);
  for (size_t i = 0; i < rows.count; ++i) {
    const double* row = values.data() + i * rows.length;
    size_t best = 0;
    for (size_t k = 1; k < rows.length; ++k) {
      const double ahead = direction * (row[k] - row[best]);
      if (ahead > 0 || (last && ahead == 0)) best = k;
    }
    found[i] = static_cast<int64_t>(best);
  }
  return {array_of_int64(outputs[0].extents, found)};
}

std::vector<Form> rule_top_k(const NodeView& node) {
  const size_t axis = axis_of(node, -1);
  Extents to = node.extents(0);
  const int64_t k = node.node().has("k") ? node.integer("k", 0) : node.known_integer(1);
  if (k < 0 || k > to[axis]) node.refuse("k is {}; must be within 0 and {}", k, to[axis]);
  to[axis] = k;
  return {{node.type(0), to}, {ElementType::kInt64, to}};
}

// The first or last index of the maximum. Positions are numbered from 1, from the other end; then
// the wanted one is the maximum over the positions that hold the maximal element.
void lower_arg_max(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Extents& from = lowering.value(node.input(0)).extents;
  const auto rank = static_cast<int>(from.size());
  const int axis = axis_of(node.integer("axis", 0), from.size());
  const bool last = node.integer("select_last_index", 0) != 0;
  const auto n = static_cast<float>(from[static_cast<size_t>(axis)]);
  if (constexpr int kExactInAll = 256; n > kExactInAll) lowering.require_fp32(node);
  const TensorId x = as_numbers(builder, name, input_of(lowering, node, 0));
  const graph::ReduceKind kind =
      node.op == "ArgMax" ? graph::ReduceKind::kMax : graph::ReduceKind::kMin;
  const TensorId best = ops::reduce(builder, name + ".best", x, kind, {axis}, true);
  Shape along;
  for (int d = 0; d < rank; ++d) along.append(d == axis ? from[static_cast<size_t>(d)] : 1);
  std::vector<int32_t> count = numbers_from<int32_t>(static_cast<size_t>(n), 1);
  if (!last) std::reverse(count.begin(), count.end());
  graph::PointwiseProgram holds, index;
  const int hit = holds.append(graph::PointwiseFunction::kEqual, holds.input(0), holds.input(1));
  holds.append(graph::PointwiseFunction::kMul, hit, holds.input(2));
  const TensorId counted = builder.constant(name + ".places", along, count);
  const TensorId held = ops::pointwise(builder, name + ".held", {x, best, counted}, holds);
  const TensorId nearest =
      ops::reduce(builder, name + ".nearest", held, graph::ReduceKind::kMax, {axis}, true);
  if (last)
    index.append(graph::PointwiseFunction::kSub, index.input(0), index.constant(1));
  else
    index.append(graph::PointwiseFunction::kSub, index.constant(n), index.input(0));
  const TensorId y = ops::pointwise(builder, name, {nearest}, index, /*integers=*/true);
  set_reshaped(lowering, node, y);
}

constexpr NodeType kNodes[] = {
    {"ArgMax", rule_arg, lower_arg_max, evaluate_arg},
    {"ArgMin", rule_arg, lower_arg_max, evaluate_arg},
    {"TopK", rule_top_k},
};

}  // namespace

std::span<const NodeType> arg_max_nodes() { return kNodes; }

}  // namespace lockstep::onnx

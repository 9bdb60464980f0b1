// Nodes with indices of elements: ArgMax, ArgMin, TopK, OneHot and NonZero.
#include <algorithm>

#include "models/onnx/nodes/indices.h"
#include "models/onnx/nodes/lowering/pointwise.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/reductions.h"
#include "models/onnx/nodes/strided.h"
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
  if (!last) std::ranges::reverse(count);
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

std::vector<Form> rule_one_hot(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_rank(2, 1, 1);
  if (node.extents(2)[0] != 2) node.refuse("its input 2 must be two numbers");
  const int64_t depth = node.known_integer(1);
  const int64_t rank = node.rank(0) + 1;
  Form to{node.type(2), node.extents(0)};
  const size_t axis = node.axis(node.integer("axis", -1), rank);
  to.extents.insert(to.extents.begin() + static_cast<int64_t>(axis), depth);
  return {to};
}

std::vector<Array> evaluate_one_hot(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& to = outputs[0].extents;
  const size_t axis = node.axis(node.integer("axis", -1), node.rank(0) + 1);
  const std::vector<int64_t> indices = node.known_integers(0);
  const int64_t depth = to[axis];
  const int64_t inner = product(to, axis + 1, to.size());
  Picker picker(node.array(2), to);
  for (int64_t i = 0; i < elements(to); ++i) {
    const int64_t at = i / inner % depth;
    int64_t index = indices[static_cast<size_t>(i / (inner * depth) * inner + i % inner)];
    if (index < 0 && index >= -depth) index += depth;
    picker.pick(index == at ? 1 : 0);
  }
  return {picker.array()};
}

// The indices of all elements that are not 0: (axes, count).
std::vector<int64_t> non_zero_indices(const NodeView& node, int64_t& count) {
  if (!node.known(0))
    node.refuse(
        "the number of nonzero elements depends on data, but extents must be known before training "
        "starts: replace the op in the model by Where or a mask");
  const std::vector<double> values = node.array(0).as_double();
  const std::vector<int64_t> strides = strides_of(node.extents(0));
  count = std::ranges::count_if(values, [](double x) { return x != 0; });
  std::vector<int64_t> indices;
  for (size_t axis = 0; axis < strides.size(); ++axis)
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] != 0)
        indices.push_back(static_cast<int64_t>(i) / strides[axis] % node.extents(0)[axis]);
  return indices;
}

std::vector<Form> rule_non_zero(const NodeView& node) {
  int64_t count = 0;
  non_zero_indices(node, count);
  return {{ElementType::kInt64, {node.rank(0), count}}};
}

std::vector<Array> evaluate_non_zero(const NodeView& node, const std::vector<Form>& outputs) {
  int64_t count = 0;
  return {array_of_int64(outputs[0].extents, non_zero_indices(node, count))};
}

// values[1] at the position of the index along the new axis, else values[0].
void lower_one_hot(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& values = lowering.readers().origin(node.input(2));
  if (values.kind != ValueKind::kConstant) refuse(node, "values: are computed; must be a constant");
  const std::vector<float> off_on = values.array.as_float();
  const Value& to = lowering.value(node.output(0));
  const Shape shape = shape_of(to);
  const int axis = axis_of(node.integer("axis", -1), to.extents.size());
  Shape with_axis, along;
  for (int d = 0; d < shape.rank(); ++d) {
    with_axis.append(d == axis ? 1 : shape[d]);
    along.append(d == axis ? shape[d] : 1);
  }
  const auto count = numbers_from<int32_t>(static_cast<size_t>(shape[axis]));
  graph::PointwiseProgram program;
  const int index = program.input(0), position = program.input(1);
  const int below = program.append(graph::PointwiseFunction::kLess, index, program.constant(0));
  const int depth = program.constant(static_cast<float>(shape[axis]));
  const int from_end = program.append(graph::PointwiseFunction::kAdd, index, depth);
  const int from_start = program.append(graph::PointwiseFunction::kWhere, below, from_end, index);
  const int hit = program.append(graph::PointwiseFunction::kEqual, from_start, position);
  program.append(graph::PointwiseFunction::kWhere,
                 hit,
                 program.constant(off_on[1]),
                 program.constant(off_on[0]));
  const TensorId indices =
      ops::reshape(builder, name + ".indices", input_of(lowering, node, 0), with_axis);
  set_output(lowering,
             node,
             ops::pointwise(builder,
                            name,
                            {indices, builder.constant(name + ".places", along, count)},
                            program,
                            is_integer(to.type)));
}

constexpr NodeType kNodes[] = {
    {"ArgMax", rule_arg, lower_arg_max, evaluate_arg},
    {"ArgMin", rule_arg, lower_arg_max, evaluate_arg},
    {"TopK", rule_top_k},
    {"OneHot", rule_one_hot, lower_one_hot, evaluate_one_hot},
    {"NonZero", rule_non_zero, {}, evaluate_non_zero},
};

}  // namespace

std::span<const NodeType> element_index_nodes() { return kNodes; }

}  // namespace lockstep::onnx

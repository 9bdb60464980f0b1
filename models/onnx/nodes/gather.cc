// Gather and GatherElements. Gather from a table that is a parameter is an embedding.

#include "runtime/graph/ops/gather.h"
#include "models/onnx/nodes/indices.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/ranges.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// Rejects constant indices outside of the axis, before a network trains with them.
void require_within(const NodeView& node, int64_t extent) {
  if (!node.known(1)) return;
  for (const int64_t index : node.known_integers(1)) checked_index(node, index, extent);
}

size_t gather_axis(const NodeView& node) {
  return node.axis(node.integer("axis", 0), node.rank(0));
}

std::vector<Form> rule_gather(const NodeView& node) {
  node.require_integers(1);
  const Extents& from = node.extents(0);
  const auto axis = static_cast<int64_t>(gather_axis(node));
  require_within(node, from[static_cast<size_t>(axis)]);
  Extents to(from.begin(), from.begin() + axis);
  to.insert(to.end(), node.extents(1).begin(), node.extents(1).end());
  to.insert(to.end(), from.begin() + axis + 1, from.end());
  return {{node.type(0), to}};
}

std::vector<Array> evaluate_gather(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& from = node.extents(0);
  const size_t axis = gather_axis(node);
  const int64_t outer = product(from, 0, axis);
  const int64_t inner = product(from, axis + 1, from.size());
  Picker picker(node.array(0), outputs[0].extents);
  std::vector<int64_t> indices = node.known_integers(1);
  for (int64_t& index : indices) index = checked_index(node, index, from[axis]);
  for (int64_t row = 0; row < outer; ++row)
    for (const int64_t index : indices) picker.pick((row * from[axis] + index) * inner, inner);
  return {picker.array()};
}

std::vector<Form> rule_gather_elements(const NodeView& node) {
  node.require_integers(1);
  node.require_rank(1, node.rank(0), node.rank(0));
  const size_t axis = gather_axis(node);
  for (size_t i = 0; i < node.extents(0).size(); ++i)
    if (i != axis && node.extents(1)[i] > node.extents(0)[i])
      node.refuse(
          "its indices have extents {} and the value {}; they may be longer only in axis {}",
          to_string(node.extents(1)),
          to_string(node.extents(0)),
          axis);
  require_within(node, node.extents(0)[axis]);
  return {{node.type(0), node.extents(1)}};
}

std::vector<Array> evaluate_gather_elements(const NodeView& node,
                                            const std::vector<Form>& outputs) {
  const size_t axis = gather_axis(node);
  std::vector<int64_t> strides = strides_of(node.extents(0));
  const int64_t stride = strides[axis];
  strides[axis] = 0;
  const int64_t extent = node.extents(0)[axis];
  Picker picker(node.array(0), outputs[0].extents);
  const std::vector<int64_t> indices = node.known_integers(1);
  auto index = indices.begin();
  for_each_offset(outputs[0].extents, strides, 0, 0, node.array(1).size(), [&](int64_t offset) {
    picker.pick(offset + checked_index(node, *index++, extent) * stride);
  });
  return {picker.array()};
}

using F = graph::PointwiseFunction;

// Constant ids, with negative ones counted from the end.
std::vector<int32_t> known_ids(const Node& node, const Value& value, int64_t rows) {
  std::vector<int32_t> ids;
  for (const int64_t id : value.array.as_int64()) {
    if (id < -rows || id >= rows)
      refuse(node, "indices: value is {}; the table has {} rows", id, rows);
    ids.push_back(static_cast<int32_t>(id < 0 ? id + rows : id));
  }
  return ids;
}

// Counts ids below 0 from the end and clamps all to the table: the native op does not check them.
graph::PointwiseProgram clamped_to(int64_t rows) {
  graph::PointwiseProgram program;
  const int id = program.input(0), zero = program.constant(0);
  const int last = program.constant(static_cast<float>(rows - 1));
  const int from_end = program.append(F::kAdd, id, program.constant(static_cast<float>(rows)));
  const int counted = program.append(F::kWhere, program.append(F::kLess, id, zero), from_end, id);
  program.append(F::kMin, program.append(F::kMax, counted, zero), last);
  return program;
}

// The ids as (A, B) i32, regardless of their axes in the file.
TensorId ids_of(Lowering& lowering, const Node& node, int64_t rows) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node) + ".ids";
  const Value& value = lowering.readers().origin(node.input(1));
  const Shape file_shape = shape_of(value);
  const Shape shape = file_shape.rank() == 2 ? file_shape : Shape{1, file_shape.elements()};
  if (value.kind == ValueKind::kConstant)
    return builder.constant(name, shape, known_ids(node, value, rows));
  TensorId ids = input_of(lowering, node, 1);
  if (file_shape != shape) ids = ops::reshape(builder, name, ids, shape);
  const auto range =
      range_of(lowering.readers().network(), node.input(1), lowering.options().limits);
  if (range && range->counts && range->max >= static_cast<double>(rows))
    refuse(node,
           "indices: are positions up to {}, but the table has {} rows; use samples with "
           "fewer tokens",
           range->max,
           rows);
  if (range && range->min >= 0 && range->max < static_cast<double>(rows)) return ids;
  return ops::pointwise(builder, name + ".within", {ids}, clamped_to(rows), /*integers=*/true);
}

bool lower_embedding(Lowering& lowering, const Node& node) {
  const ParameterSource table = lowering.readers().source_of(node.input(0));
  if (table.value < 0 || table.transposed || node.integer("axis", 0) != 0) return false;
  const Extents& extents = lowering.value(table.value).extents;
  if (extents.size() != 2 || !lowering.parameters().can_have(table.value, Storage::kAsInFile))
    return false;
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId ids = ids_of(lowering, node, extents[0]);
  const TensorId rows =
      ops::embedding(builder, name, ids, lowering.parameters().get(table.value), kNoTensor);
  const Shape shape = shape_of(lowering.value(node.output(0)));
  set_output(lowering, node, shaped(builder, name + ".extents", rows, shape));
  return true;
}

void lower_gather(Lowering& lowering, const Node& node) {
  if (lower_embedding(lowering, node)) return;
  set_output(lowering,
             node,
             ops::gather(lowering.builder(),
                         lowering.name_of(node),
                         input_of(lowering, node, 0),
                         input_of(lowering, node, 1),
                         static_cast<int>(node.integer("axis", 0))));
}

// Along the other axes, x is first cut to the extents of the indices.
void lower_gather_elements(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  TensorId x = input_of(lowering, node, 0);
  const TensorId indices = input_of(lowering, node, 1);
  const Shape from = builder.shape(x), to = builder.shape(indices);
  const auto rank = static_cast<size_t>(from.rank());
  const int axis = axis_of(node.integer("axis", 0), rank);
  Shape part;
  for (int d = 0; d < from.rank(); ++d) part.append(d == axis ? from[d] : to[d]);
  if (part != from)
    x = ops::slice(builder,
                   name + ".part",
                   x,
                   std::vector<int64_t>(rank, 0),
                   std::vector<int64_t>(rank, 1),
                   part);
  set_output(lowering, node, ops::gather_elements(builder, name, x, indices, axis));
}

constexpr NodeType kNodes[] = {
    {"Gather", rule_gather, lower_gather, evaluate_gather},
    {"GatherElements", rule_gather_elements, lower_gather_elements, evaluate_gather_elements},
};

}  // namespace

std::span<const NodeType> gather_nodes() { return kNodes; }

}  // namespace lockstep::onnx

// GatherND and ScatterND: indices of several axes.

#include <algorithm>
#include <limits>
#include <numeric>

#include "models/onnx/nodes/indices.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/gather.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// The number of axes that an index of GatherND or ScatterND covers: the extent of the last axis of
// input 1.
int64_t index_length(const NodeView& node, int64_t batch_axes) {
  node.require_type(1, ElementType::kInt64);
  if (node.rank(1) < 1 || node.rank(0) < 1) node.refuse("data and indices must have an axis");
  const int64_t length = node.extents(1).back();
  if (length < 1 || length > node.rank(0) - batch_axes)
    node.refuse(
        "its indices address {} axes, but the value has {}", length, node.rank(0) - batch_axes);
  return length;
}

size_t batch_axes_of(const NodeView& node) {
  const int64_t count = node.integer("batch_dims", 0, 0, kMaxExtent);
  if (count >= std::min(node.rank(0), node.rank(1)))
    node.refuse("attribute batch_dims is {}; must be below the number of axes", count);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    if (node.extents(0)[i] != node.extents(1)[i])
      node.refuse("the extents {} and {} of its inputs differ in batch axis {}",
                  to_string(node.extents(0)),
                  to_string(node.extents(1)),
                  i);
  return static_cast<size_t>(count);
}

std::vector<Form> rule_gather_nd(const NodeView& node) {
  const size_t batch = batch_axes_of(node);
  const int64_t length = index_length(node, static_cast<int64_t>(batch));
  const Extents& from = node.extents(0);
  if (node.known(1)) {
    const std::vector<int64_t> indices = node.known_integers(1);
    for (size_t i = 0; i < indices.size(); ++i)
      checked_index(node, indices[i], from[batch + i % static_cast<size_t>(length)]);
  }
  Extents to(node.extents(1).begin(), node.extents(1).end() - 1);
  to.insert(to.end(), from.begin() + static_cast<int64_t>(batch) + length, from.end());
  return {{node.type(0), to}};
}

// The offset of the slice at `index`, which covers `length` axes beginning with `first`.
int64_t offset_of(const NodeView& node,
                  const std::vector<int64_t>& strides,
                  size_t first,
                  const int64_t* index,
                  int64_t length) {
  int64_t offset = 0;
  for (size_t i = 0; i < static_cast<size_t>(length); ++i)
    offset += checked_index(node, index[i], node.extents(0)[first + i]) * strides[first + i];
  return offset;
}

std::vector<Array> evaluate_gather_nd(const NodeView& node, const std::vector<Form>& outputs) {
  const size_t batch = batch_axes_of(node);
  const Extents& from = node.extents(0);
  const int64_t length = node.extents(1).back();
  const std::vector<int64_t> strides = strides_of(from);
  const int64_t inner = product(from, batch + static_cast<size_t>(length), from.size());
  const int64_t batches = product(from, 0, batch);
  const int64_t stride = product(from, batch, from.size());
  const std::vector<int64_t> indices = node.known_integers(1);
  const int64_t count = batches == 0 ? 0 : node.array(1).size() / length / batches;
  Picker picker(node.array(0), outputs[0].extents);
  for (int64_t i = 0; i < count * batches; ++i) {
    const int64_t* index = indices.data() + i * length;
    picker.pick(i / count * stride + offset_of(node, strides, batch, index, length), inner);
  }
  return {picker.array()};
}

std::vector<Form> rule_scatter_nd(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_same_type(0, 2);
  const int64_t length = index_length(node, 0);
  Extents updates(node.extents(1).begin(), node.extents(1).end() - 1);
  updates.insert(updates.end(), node.extents(0).begin() + length, node.extents(0).end());
  if (updates != node.extents(2))
    node.refuse("its updates have extents {}; must have {}",
                to_string(node.extents(2)),
                to_string(updates));
  return {node.form(0)};
}

std::vector<Array> evaluate_scatter_nd(const NodeView& node, const std::vector<Form>&) {
  if (node.node().text("reduction", "none") != "none")
    node.refuse(
        "attribute reduction; must be none if the result is computed before training starts");
  const Array& from = node.array(0);
  const Array& updates = node.array(2);
  const int64_t length = node.extents(1).back();
  const std::vector<int64_t> strides = strides_of(from.extents);
  const size_t bytes =
      static_cast<size_t>(product(from.extents, static_cast<size_t>(length), from.extents.size())) *
      size_of(from.type);
  NewArray made = make_array(from.type, from.extents);
  std::copy_n(from.data.get(), from.bytes(), made.data);
  const std::vector<int64_t> indices = node.known_integers(1);
  const size_t count = indices.size() / static_cast<size_t>(length);
  for (size_t i = 0; i < count; ++i) {
    const int64_t* index = indices.data() + i * static_cast<size_t>(length);
    const auto at = static_cast<size_t>(offset_of(node, strides, 0, index, length));
    std::copy_n(updates.data.get() + i * bytes, bytes, made.data + at * size_of(from.type));
  }
  return {made.array};
}

// GatherND and ScatterND as a gather of rows: x is reshaped to (rows, inner), where a row is given
// by the batch axes and the K axes that an index (..., K) covers.
struct NamedRows {
  int64_t batch = 1, inner = 1;
  std::vector<int64_t> extents;  // of the K axes
  int64_t count = 1;             // of indices

  int64_t total() const {
    return std::accumulate(extents.begin(), extents.end(), batch, std::multiplies<>());
  }
};

NamedRows named_rows(const Extents& from, const Extents& indices, size_t batch_axes) {
  NamedRows rows;
  const auto depth = static_cast<size_t>(indices.back());
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (axis < batch_axes)
      rows.batch *= from[axis];
    else if (axis < batch_axes + depth)
      rows.extents.push_back(from[axis]);
    else
      rows.inner *= from[axis];
  }
  for (size_t axis = 0; axis + 1 < indices.size(); ++axis) rows.count *= indices[axis];
  return rows;
}

// The row numbers of constant indices.
std::vector<int32_t> row_numbers(const NamedRows& rows, const std::vector<int64_t>& indices) {
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < rows.count; ++i) {
    int64_t number = i / (rows.count / rows.batch);
    for (size_t k = 0; k < rows.extents.size(); ++k) {
      const int64_t index = indices[static_cast<size_t>(i) * rows.extents.size() + k];
      number = number * rows.extents[k] + (index < 0 ? index + rows.extents[k] : index);
    }
    numbers.push_back(static_cast<int32_t>(number));
  }
  return numbers;
}

// The same for computed indices.
TensorId computed_row_numbers(graph::GraphBuilder& builder,
                              const std::string& name,
                              const NamedRows& rows,
                              TensorId indices) {
  const auto depth = static_cast<int64_t>(rows.extents.size());
  const TensorId each = ops::reshape(builder, name + ".indices", indices, {rows.count, depth});
  graph::PointwiseProgram program;
  std::vector<int32_t> batch;
  for (int64_t i = 0; i < rows.count; ++i)
    batch.push_back(static_cast<int32_t>(i / (rows.count / rows.batch)));
  std::vector<TensorId> inputs = {builder.constant(name + ".batch", {rows.count, 1}, batch)};
  int number = program.input(0);
  for (int64_t k = 0; k < depth; ++k) {
    inputs.push_back(ops::slice(builder, name + ".index", each, {0, k}, {1, 1}, {rows.count, 1}));
    const int extent = program.constant(static_cast<float>(rows.extents[static_cast<size_t>(k)]));
    const int index = program.input(static_cast<int>(k) + 1);
    const int below = program.append(graph::PointwiseFunction::kLess, index, program.constant(0));
    const int from_end = program.append(graph::PointwiseFunction::kAdd, index, extent);
    const int from_start = program.append(graph::PointwiseFunction::kWhere, below, from_end, index);
    number = program.append(graph::PointwiseFunction::kAdd,
                            program.append(graph::PointwiseFunction::kMul, number, extent),
                            from_start);
  }
  program.set_result(number);
  const TensorId numbers =
      ops::pointwise(builder, name + ".numbers", inputs, program, /*integers=*/true);
  return ops::reshape(builder, name + ".places", numbers, {rows.count});
}

void lower_gather_nd(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& indices = lowering.readers().origin(node.input(1));
  const NamedRows rows = named_rows(lowering.value(node.input(0)).extents,
                                    indices.extents,
                                    static_cast<size_t>(node.integer("batch_dims", 0)));
  const bool known = indices.kind == ValueKind::kConstant;
  // Computed row numbers are float32 in between, which is exact up to 2^24.
  const int64_t max_rows = known ? std::numeric_limits<int32_t>::max() : int64_t{1} << 24;
  if (rows.total() > max_rows ||
      (!known && rows.extents.size() >= graph::PointwiseProgram::kMaxInputs))
    refuse(node,
           "addresses {} rows by {} indices; allowed: at most {} by {}",
           rows.total(),
           rows.extents.size(),
           max_rows,
           graph::PointwiseProgram::kMaxInputs - 1);
  const TensorId numbers =
      known ? builder.constant(
                  name + ".places", {rows.count}, row_numbers(rows, indices.array.as_int64()))
            : computed_row_numbers(builder, name, rows, input_of(lowering, node, 1));
  const TensorId x = ops::reshape(
      builder, name + ".rows", input_of(lowering, node, 0), {rows.total(), rows.inner});
  set_reshaped(lowering, node, ops::gather(builder, name, x, numbers, 0));
}

// Gathers the rows of the result from x and the updates, which are concatenated.
void lower_scatter_nd(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& indices = lowering.readers().origin(node.input(1));
  if (indices.kind != ValueKind::kConstant)
    refuse(node, "indices: are computed; must be a constant");
  if (node.text("reduction", "none") != "none")
    refuse(node, "reduction: value is {}; allowed: none", node.text("reduction", ""));
  const NamedRows rows =
      named_rows(lowering.value(node.input(0)).extents, indices.extents, /*batch_axes=*/0);
  if (rows.total() + rows.count > std::numeric_limits<int32_t>::max())
    refuse(node, "addresses {} rows; allowed: fewer than 2^31", rows.total());
  std::vector<int32_t> picked = numbers_from<int32_t>(static_cast<size_t>(rows.total()));
  auto update = static_cast<int32_t>(rows.total());
  for (const int32_t row : row_numbers(rows, indices.array.as_int64()))
    picked[static_cast<size_t>(row)] = update++;
  const TensorId x = ops::reshape(builder,
                                  name + ".rows",
                                  input_of(lowering, node, 0),
                                  {rows.total(), rows.inner}),
                 updates = ops::reshape(builder,
                                        name + ".updates",
                                        input_of(lowering, node, 2),
                                        {rows.count, rows.inner});
  const TensorId numbers = builder.constant(name + ".places", {rows.total()}, picked);
  const TensorId both = ops::concat(builder, name + ".both", {x, updates}, 0);
  set_reshaped(lowering, node, ops::gather(builder, name, both, numbers, 0));
}

constexpr NodeType kNodes[] = {
    {"GatherND", rule_gather_nd, lower_gather_nd, evaluate_gather_nd},
    {"ScatterND", rule_scatter_nd, lower_scatter_nd, evaluate_scatter_nd},
};

}  // namespace

std::span<const NodeType> gather_nd_nodes() { return kNodes; }

}  // namespace lockstep::onnx

// Gathering and scattering by indices, and rearranging blocks of pixels.
#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "models/onnx/lowering/axes.h"
#include "models/onnx/lowering/layers.h"
#include "models/onnx/lowering/pointwise_functions.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/gather.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {

void lower_gather(Lowering& lowering, const Node& node) {
  if (lower_embedding(lowering, node)) return;
  lowering.set(node.output(0),
               ops::gather(lowering.builder(),
                           lowering.name_of(node),
                           lowering.plain(node.input(0)),
                           lowering.plain(node.input(1)),
                           static_cast<int>(node.integer("axis", 0))));
}

// Along the other axes, x is first cut to the extents of the indices.
void lower_gather_elements(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  TensorId x = lowering.plain(node.input(0));
  const TensorId indices = lowering.plain(node.input(1));
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
  lowering.set(node.output(0), ops::gather_elements(builder, name, x, indices, axis));
}

namespace {

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
TensorId computed_row_numbers(GraphBuilder& builder,
                              const std::string& name,
                              const NamedRows& rows,
                              TensorId indices) {
  const auto depth = static_cast<int64_t>(rows.extents.size());
  const TensorId each = ops::reshape(builder, name + ".indices", indices, {rows.count, depth});
  PointwiseProgram program;
  std::vector<int32_t> batch;
  for (int64_t i = 0; i < rows.count; ++i)
    batch.push_back(static_cast<int32_t>(i / (rows.count / rows.batch)));
  std::vector<TensorId> inputs = {builder.constant(name + ".batch", {rows.count, 1}, batch)};
  int number = program.input(0);
  for (int64_t k = 0; k < depth; ++k) {
    inputs.push_back(ops::slice(builder, name + ".index", each, {0, k}, {1, 1}, {rows.count, 1}));
    const int extent = program.constant(static_cast<float>(rows.extents[static_cast<size_t>(k)]));
    const int index = program.input(static_cast<int>(k) + 1);
    const int below = program.append(PointwiseFunction::kLess, index, program.constant(0));
    const int from_end = program.append(PointwiseFunction::kAdd, index, extent);
    const int from_start = program.append(PointwiseFunction::kWhere, below, from_end, index);
    number = program.append(PointwiseFunction::kAdd,
                            program.append(PointwiseFunction::kMul, number, extent),
                            from_start);
  }
  program.set_result(number);
  const TensorId numbers =
      ops::pointwise(builder, name + ".numbers", inputs, program, /*integers=*/true);
  return ops::reshape(builder, name + ".places", numbers, {rows.count});
}

}  // namespace

void lower_gather_nd(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& indices = lowering.value(lowering.origin_of(node.input(1)));
  const NamedRows rows = named_rows(lowering.value(node.input(0)).extents,
                                    indices.extents,
                                    static_cast<size_t>(node.integer("batch_dims", 0)));
  const bool known = indices.kind == ValueKind::kConstant;
  // Computed row numbers are float32 in between, which is exact up to 2^24.
  const int64_t max_rows = known ? std::numeric_limits<int32_t>::max() : int64_t{1} << 24;
  if (rows.total() > max_rows || (!known && rows.extents.size() >= PointwiseProgram::kMaxInputs))
    refuse(node,
           fmt::format("addresses {} rows by {} indices; allowed: at most {} by {}",
                       rows.total(),
                       rows.extents.size(),
                       max_rows,
                       PointwiseProgram::kMaxInputs - 1));
  const TensorId numbers =
      known ? builder.constant(
                  name + ".places", {rows.count}, row_numbers(rows, indices.array.as_int64()))
            : computed_row_numbers(builder, name, rows, lowering.plain(node.input(1)));
  const TensorId x = ops::reshape(
      builder, name + ".rows", lowering.plain(node.input(0)), {rows.total(), rows.inner});
  lowering.set(node.output(0),
               ops::reshape(builder,
                            name + ".extents",
                            ops::gather(builder, name, x, numbers, 0),
                            shape_of(lowering.value(node.output(0)))));
}

// Gathers the rows of the result from x and the updates, which are concatenated.
void lower_scatter_nd(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& indices = lowering.value(lowering.origin_of(node.input(1)));
  if (indices.kind != ValueKind::kConstant)
    refuse(node, "indices: are computed; must be a constant");
  if (node.text("reduction", "none") != "none")
    refuse(node, fmt::format("reduction: value is {}; allowed: none", node.text("reduction", "")));
  const NamedRows rows =
      named_rows(lowering.value(node.input(0)).extents, indices.extents, /*batch_axes=*/0);
  if (rows.total() + rows.count > std::numeric_limits<int32_t>::max())
    refuse(node, fmt::format("addresses {} rows; allowed: fewer than 2^31", rows.total()));
  std::vector<int32_t> picked(static_cast<size_t>(rows.total()));
  std::iota(picked.begin(), picked.end(), 0);
  auto update = static_cast<int32_t>(rows.total());
  for (const int32_t row : row_numbers(rows, indices.array.as_int64()))
    picked[static_cast<size_t>(row)] = update++;
  const TensorId x = ops::reshape(builder,
                                  name + ".rows",
                                  lowering.plain(node.input(0)),
                                  {rows.total(), rows.inner}),
                 updates = ops::reshape(builder,
                                        name + ".updates",
                                        lowering.plain(node.input(2)),
                                        {rows.count, rows.inner});
  const TensorId numbers = builder.constant(name + ".places", {rows.total()}, picked);
  const TensorId both = ops::concat(builder, name + ".both", {x, updates}, 0);
  lowering.set(node.output(0),
               ops::reshape(builder,
                            name + ".extents",
                            ops::gather(builder, name, both, numbers, 0),
                            shape_of(lowering.value(node.output(0)))));
}

// values[1] at the position of the index along the new axis, else values[0].
void lower_one_hot(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& values = lowering.value(lowering.origin_of(node.input(2)));
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
  std::vector<int32_t> count(static_cast<size_t>(shape[axis]));
  std::iota(count.begin(), count.end(), 0);
  PointwiseProgram program;
  const int index = program.input(0), position = program.input(1);
  const int below = program.append(PointwiseFunction::kLess, index, program.constant(0));
  const int depth = program.constant(static_cast<float>(shape[axis]));
  const int from_end = program.append(PointwiseFunction::kAdd, index, depth);
  const int from_start = program.append(PointwiseFunction::kWhere, below, from_end, index);
  const int hit = program.append(PointwiseFunction::kEqual, from_start, position);
  program.append(
      PointwiseFunction::kWhere, hit, program.constant(off_on[1]), program.constant(off_on[0]));
  const TensorId indices =
      ops::reshape(builder, name + ".indices", lowering.plain(node.input(0)), with_axis);
  lowering.set(node.output(0),
               ops::pointwise(builder,
                              name,
                              {indices, builder.constant(name + ".places", along, count)},
                              program,
                              is_integer(to.type)));
}

void lower_tile(Lowering& lowering, const Node& node) {
  const std::vector<int64_t> repeats = constant_list(lowering, node, 1);
  lowering.set(
      node.output(0),
      ops::tile(
          lowering.builder(), lowering.name_of(node), lowering.plain(node.input(0)), repeats));
}

// (N, H, W, channels of b x b blocks) -> (N, H b, W b, channels).
void lower_depth_to_space(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = lowering.channels_last(node.input(0));
  const Shape shape = builder.shape(x);
  const int64_t block = node.integer("blocksize", 1), channels = shape[3] / (block * block);
  const bool channels_first = node.text("mode", "DCR") == "CRD";
  const Shape split = channels_first ? Shape{shape[0], shape[1], shape[2], channels, block, block}
                                     : Shape{shape[0], shape[1], shape[2], block, block, channels};
  const std::vector<int> order =
      channels_first ? std::vector<int>{0, 1, 4, 2, 5, 3} : std::vector<int>{0, 1, 3, 2, 4, 5};
  const TensorId blocks =
      ops::transpose(builder, name, ops::reshape(builder, name + ".apart", x, split), order);
  const Shape merged = {shape[0], shape[1] * block, shape[2] * block, channels};
  lowering.set(node.output(0),
               ops::reshape(builder, name + ".extents", blocks, merged),
               /*channels_last=*/true);
}

// The inverse of DepthToSpace with mode DCR.
void lower_space_to_depth(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId x = lowering.channels_last(node.input(0));
  const Shape shape = builder.shape(x);
  const int64_t block = node.integer("blocksize", 1);
  const int64_t height = shape[1] / block, width = shape[2] / block;
  const TensorId split =
      ops::reshape(builder, name + ".apart", x, {shape[0], height, block, width, block, shape[3]});
  const TensorId blocks = ops::transpose(builder, name, split, {0, 1, 3, 2, 4, 5});
  const Shape merged = {shape[0], height, width, block * block * shape[3]};
  lowering.set(node.output(0),
               ops::reshape(builder, name + ".extents", blocks, merged),
               /*channels_last=*/true);
}

// Sets the elements on one side of a diagonal to 0.
void lower_trilu(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const Extents& extents = lowering.value(node.output(0)).extents;
  const int64_t rows = extents[extents.size() - 2], columns = extents.back();
  int64_t diagonal = 0;
  if (node.input(1) >= 0) {
    const std::vector<int64_t> given = constant_list(lowering, node, 1);
    if (given.size() != 1) refuse(node, "k: must be one number");
    diagonal = given[0];
  }
  const bool upper = node.integer("upper", 1) != 0;
  std::vector<float> kept;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      kept.push_back((upper ? c - r >= diagonal : c - r <= diagonal) ? 1.0f : 0.0f);
  const std::string name = lowering.name_of(node);
  const TensorId mask = builder.constant(name + ".kept", {rows, columns}, kept);
  PointwiseProgram program;
  const int condition = program.input(0), x = program.input(1);
  program.append(PointwiseFunction::kWhere, condition, x, program.constant(0));
  lowering.set(node.output(0),
               ops::pointwise(builder,
                              name,
                              {mask, lowering.plain(node.input(0))},
                              program,
                              is_integer(lowering.value(node.output(0)).type)));
}

}  // namespace lockstep::onnx

// Gather from a table that is a parameter: an embedding.
#include <fmt/format.h>

#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

using F = PointwiseFunction;

// Constant ids, with negative ones counted from the end.
std::vector<int32_t> known_ids(const Node& node, const Value& value, int64_t rows) {
  std::vector<int32_t> ids;
  for (const int64_t id : value.array.as_int64()) {
    if (id < -rows || id >= rows)
      refuse(node, fmt::format("indices: value is {}; the table has {} rows", id, rows));
    ids.push_back(static_cast<int32_t>(id < 0 ? id + rows : id));
  }
  return ids;
}

// Counts ids below 0 from the end and clamps all to the table: the native op does not check them.
PointwiseProgram clamped_to(int64_t rows) {
  PointwiseProgram program;
  const int id = program.input(0), zero = program.constant(0);
  const int last = program.constant(static_cast<float>(rows - 1));
  const int from_end = program.append(F::kAdd, id, program.constant(static_cast<float>(rows)));
  const int counted = program.append(F::kWhere, program.append(F::kLess, id, zero), from_end, id);
  program.append(F::kMin, program.append(F::kMax, counted, zero), last);
  return program;
}

// The ids as (A, B) i32, regardless of their axes in the file.
TensorId ids_of(Lowering& lowering, const Node& node, int64_t rows) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node) + ".ids";
  const Value& value = lowering.value(lowering.origin_of(node.input(1)));
  const Shape file_shape = shape_of(value);
  const Shape shape = file_shape.rank() == 2 ? file_shape : Shape{1, file_shape.elements()};
  if (value.kind == ValueKind::kConstant)
    return builder.constant(name, shape, known_ids(node, value, rows));
  TensorId ids = lowering.plain(node.input(1));
  if (file_shape != shape) ids = ops::reshape(builder, name, ids, shape);
  const auto range = lowering.range_of(node.input(1));
  if (range && range->counts && range->max >= static_cast<double>(rows))
    refuse(
        node,
        fmt::format("indices: are positions up to {}, but the table has {} rows; use samples with "
                    "fewer tokens",
                    range->max,
                    rows));
  if (range && range->min >= 0 && range->max < static_cast<double>(rows)) return ids;
  return ops::pointwise(builder, name + ".within", {ids}, clamped_to(rows), /*integers=*/true);
}

}  // namespace

bool lower_embedding(Lowering& lowering, const Node& node) {
  const Lowering::Source table = lowering.source_of(node.input(0));
  if (table.value < 0 || table.transposed || node.integer("axis", 0) != 0) return false;
  const Extents& extents = lowering.value(table.value).extents;
  if (extents.size() != 2 || !lowering.can_have(table.value, Storage::kAsInFile)) return false;
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId ids = ids_of(lowering, node, extents[0]);
  const TensorId rows =
      ops::embedding(builder, name, ids, lowering.parameter(table.value), kNoTensor);
  const Shape shape = shape_of(lowering.value(node.output(0)));
  const bool as_is = builder.shape(rows) == shape;
  lowering.set(node.output(0),
               as_is ? rows : ops::reshape(builder, name + ".extents", rows, shape));
  return true;
}

}  // namespace lockstep::onnx

// Products and tables with parameters.
#include "models/onnx/lowering/layers.h"

#include <fmt/format.h>

#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// The matrix (O, I) of a product, whatever order the file has it in.
TensorId output_matrix(Lowering& lowering, const Node& node, int number, bool transposed_by_node) {
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents.size() != 2)
    refuse(node, "is a product with what is no matrix of parameters; there is no such op here");
  const bool transposed = source.transposed != transposed_by_node;
  return lowering.parameter(
      node, source.value, transposed ? Storage::kAsInFile : Storage::kTransposed);
}

// Of so many elements; kNoTensor where the value is no such parameter.
TensorId bias_of(Lowering& lowering, const Node& node, int number, int64_t outputs) {
  if (number < 0) return kNoTensor;
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents != Extents{outputs})
    return kNoTensor;
  return lowering.parameter(node, source.value, Storage::kAsInFile);
}

// x weight^T + bias as the value `output`.
void append_linear(
    Lowering& lowering, const Node& node, int x, TensorId weight, TensorId bias, int output) {
  GraphBuilder& builder = lowering.builder();
  TensorId input = lowering.plain(x);
  const std::string name = lowering.name_of(node);
  const Shape shape = shape_of(lowering.value(output));
  // Rows of several axes: told apart from a sample of several axes, which linear takes as one row.
  if (builder.shape(input).rank() > 2)
    input = ops::reshape(builder,
                         name + ".rows",
                         input,
                         {builder.shape(input).rows(), builder.shape(input).columns()});
  TensorId y = ops::linear(builder, name, input, weight, bias, Activation::kNone);
  if (builder.shape(y) != shape) y = ops::reshape(builder, name + ".extents", y, shape);
  lowering.set(output, y);
}

}  // namespace

void lower_gemm(Lowering& lowering, const Node& node) {
  if (node.number("alpha", 1) != 1 || node.integer("transA", 0) != 0)
    refuse(node, "alpha and transA: must be 1 and 0; other products are not known here");
  const TensorId weight =
      output_matrix(lowering, node, node.input(1), node.integer("transB", 0) != 0);
  const int64_t outputs = lowering.builder().shape(weight)[0];
  const TensorId bias = bias_of(lowering, node, node.input(2), outputs);
  if (node.input(2) >= 0 && (bias == kNoTensor || node.number("beta", 1) != 1))
    refuse(node, fmt::format("C: must be {} parameters, with a beta of 1", outputs));
  append_linear(lowering, node, node.input(0), weight, bias, node.output(0));
}

// With the bias that the only reader adds.
void lower_mat_mul(Lowering& lowering, const Node& node) {
  const TensorId weight = output_matrix(lowering, node, node.input(1), false);
  const int64_t outputs = lowering.builder().shape(weight)[0];
  const Node* reader = lowering.only_reader(node.output(0));
  if (reader != nullptr && reader->op == "Add" && reader->domain.empty()) {
    const int other = reader->input(reader->input(0) == node.output(0) ? 1 : 0);
    const TensorId bias = bias_of(lowering, *reader, other, outputs);
    if (bias != kNoTensor) {
      lowering.pass_over(*reader);
      return append_linear(lowering, node, node.input(0), weight, bias, reader->output(0));
    }
  }
  append_linear(lowering, node, node.input(0), weight, kNoTensor, node.output(0));
}

namespace {

// x[..., index, ...] along an axis.
void select(Lowering& lowering, const Node& node, int64_t index) {
  const TensorId x = lowering.plain(node.input(0));
  GraphBuilder& builder = lowering.builder();
  const Shape from = builder.shape(x);
  const int64_t given = node.integer("axis", 0);
  const auto axis = static_cast<int>(given < 0 ? given + from.rank() : given);
  std::vector<int64_t> starts(static_cast<size_t>(from.rank()), 0), steps(starts.size(), 1);
  starts[static_cast<size_t>(axis)] = index < 0 ? index + from[axis] : index;
  Shape one;
  for (int d = 0; d < from.rank(); ++d) one.append(d == axis ? 1 : from[d]);
  const std::string name = lowering.name_of(node);
  const TensorId y = ops::slice(builder, name, x, starts, steps, one);
  const Shape shape = shape_of(lowering.value(node.output(0)));
  lowering.set(node.output(0), ops::reshape(builder, name + ".extents", y, shape));
}

}  // namespace

// Of a table (V, C): an embedding. By one known index: a slice.
void lower_gather(Lowering& lowering, const Node& node) {
  const Value& index = lowering.value(node.input(1));
  if (index.kind == ValueKind::kConstant && index.array.size() == 1)
    return select(lowering, node, index.array.as_int64()[0]);
  const Lowering::Source source = lowering.source_of(node.input(0));
  const Value& ids = lowering.value(node.input(1));
  if (source.value < 0 || source.transposed || node.integer("axis", 0) != 0 ||
      lowering.value(source.value).extents.size() != 2 || ids.kind == ValueKind::kConstant)
    refuse(node, "must take rows of a table of parameters (V, C) by computed ids");
  GraphBuilder& builder = lowering.builder();
  const TensorId table = lowering.parameter(node, source.value, Storage::kAsInFile);
  const std::string name = lowering.name_of(node);
  const TensorId rows = lowering.plain(node.input(1));
  const int64_t batch = builder.shape(rows).rank() > 0 ? builder.shape(rows)[0] : 1;
  const int64_t count = builder.shape(rows).elements();
  const TensorId matrix =
      builder.shape(rows).rank() == 2
          ? rows
          : ops::reshape(
                builder, name + ".ids", rows, {batch, count / std::max<int64_t>(batch, 1)});
  const TensorId y = ops::embedding(builder, name, matrix, table, kNoTensor);
  const Shape shape = shape_of(lowering.value(node.output(0)));
  lowering.set(node.output(0),
               builder.shape(y) == shape ? y : ops::reshape(builder, name + ".extents", y, shape));
}

}  // namespace lockstep::onnx

// Products with parameters, and what indices name.
#include "models/onnx/lowering/layers.h"

#include <fmt/format.h>

#include "runtime/graph/ops/gather.h"
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
  return lowering.parameter(source.value, transposed ? Storage::kAsInFile : Storage::kTransposed);
}

// Of so many elements; kNoTensor where the value is no such parameter.
TensorId bias_of(Lowering& lowering, int number, int64_t outputs) {
  if (number < 0) return kNoTensor;
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents != Extents{outputs})
    return kNoTensor;
  return lowering.parameter(source.value);
}

// x weight^T + bias as the value `output`.
void append_linear(
    Lowering& lowering, const Node& node, int x, TensorId weight, TensorId bias, int output) {
  GraphBuilder& builder = lowering.builder();
  TensorId input = lowering.plain(x);
  const std::string name = lowering.name_of(node);
  const Shape shape = shape_of(lowering.value(output));
  // As rows: of more axes linear might take a sample as one row.
  if (builder.shape(input).rank() != 2)
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
  const TensorId bias = bias_of(lowering, node.input(2), outputs);
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
    const TensorId bias = bias_of(lowering, other, outputs);
    if (bias != kNoTensor) {
      lowering.pass_over(*reader);
      return append_linear(lowering, node, node.input(0), weight, bias, reader->output(0));
    }
  }
  append_linear(lowering, node, node.input(0), weight, kNoTensor, node.output(0));
}

// By indices that are known.
void lower_gather(Lowering& lowering, const Node& node) {
  if (lowering.value(node.input(1)).kind != ValueKind::kConstant)
    refuse(node, "indices: are computed; must be a constant");
  lowering.set(node.output(0),
               ops::gather(lowering.builder(),
                           lowering.name_of(node),
                           lowering.plain(node.input(0)),
                           lowering.plain(node.input(1)),
                           static_cast<int>(node.integer("axis", 0))));
}

}  // namespace lockstep::onnx

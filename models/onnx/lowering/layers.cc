// Products with parameters: linear layers.
#include "models/onnx/lowering/layers.h"

#include <optional>

#include "models/onnx/constants.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// The storage of a linear layer's weight (O, I). None if the value is not a matrix of parameters,
// or if another op uses it with another storage.
std::optional<Storage> matrix_storage(const Lowering& lowering,
                                      int number,
                                      bool transposed_by_node) {
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents.size() != 2) return std::nullopt;
  const Storage storage =
      source.transposed != transposed_by_node ? Storage::kAsInFile : Storage::kTransposed;
  if (!lowering.can_have(source.value, storage)) return std::nullopt;
  return storage;
}

// The bias with this many elements; kNoTensor if the value is not such a parameter.
TensorId bias_of(Lowering& lowering, int number, int64_t outputs) {
  if (number < 0) return kNoTensor;
  const Lowering::Source source = lowering.source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents != Extents{outputs})
    return kNoTensor;
  return lowering.parameter(source.value);
}

// Appends x weight^T + bias, as the value `output`.
void append_linear(
    Lowering& lowering, const Node& node, int x, TensorId weight, TensorId bias, int output) {
  GraphBuilder& builder = lowering.builder();
  TensorId input = lowering.plain(x);
  const std::string name = lowering.name_of(node);
  const Shape shape = shape_of(lowering.value(output));
  // The op linear may read a sample of more than 2 axes as one row, so it gets rows.
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
  const auto storage = matrix_storage(lowering, node.input(1), node.integer("transB", 0) != 0);
  if (!storage || node.number("alpha", 1) != 1 || node.integer("transA", 0) != 0)
    return lower_batched_gemm(lowering, node);
  const int64_t outputs = lowering.value(node.output(0)).extents.back();
  const TensorId bias = bias_of(lowering, node.input(2), outputs);
  if (node.input(2) >= 0 && (bias == kNoTensor || node.number("beta", 1) != 1))
    return lower_batched_gemm(lowering, node);
  const TensorId weight = lowering.parameter(lowering.source_of(node.input(1)).value, *storage);
  append_linear(lowering, node, node.input(0), weight, bias, node.output(0));
}

// Fuses the addition of a bias, if that is the only reader.
void lower_mat_mul(Lowering& lowering, const Node& node) {
  const auto storage = matrix_storage(lowering, node.input(1), false);
  if (!storage) return lower_batched_mat_mul(lowering, node);
  const TensorId weight = lowering.parameter(lowering.source_of(node.input(1)).value, *storage);
  const int64_t outputs = lowering.builder().shape(weight)[0];
  const Node* reader = lowering.only_reader(node.output(0));
  if (is_op(reader, "Add")) {
    const int other = reader->input(lowering.origin_of(reader->input(0)) == node.output(0) ? 1 : 0);
    const TensorId bias = bias_of(lowering, other, outputs);
    if (bias != kNoTensor) {
      lowering.mark_fused(*reader);
      return append_linear(lowering, node, node.input(0), weight, bias, reader->output(0));
    }
  }
  append_linear(lowering, node, node.input(0), weight, kNoTensor, node.output(0));
}

}  // namespace lockstep::onnx

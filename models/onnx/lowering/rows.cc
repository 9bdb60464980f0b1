// Layer norm and RMS norm.
#include "models/onnx/lowering/axes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/layer_norm.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/reduce.h"
#include "runtime/graph/ops/rms_norm.h"

namespace lockstep::onnx {
namespace {

// Whether the input can be a gain or bias of the native norms: a parameter with this many elements
// that only this node reads.
bool is_unshared_parameter(Lowering& lowering, int number, int64_t columns) {
  const Lowering::Source source = lowering.source_of(number);
  return source.value >= 0 && lowering.value(source.value).extents == Extents{columns} &&
         lowering.can_have(source.value, Storage::kAsInFile) &&
         lowering.only_reader(source.value) != nullptr;
}

TensorId unshared_parameter_or_none(Lowering& lowering, int number) {
  return number < 0 ? kNoTensor : lowering.unshared_parameter(lowering.source_of(number).value);
}

// The first normalised axis.
int first_axis(Lowering& lowering, const Node& node) {
  return axis_of(node.integer("axis", -1), lowering.value(node.input(0)).extents.size());
}

// The norm as single ops, for several normalised axes and for gains and biases that the native op
// does not take: x / sqrt(mean(x^2) + epsilon) gain + bias. In a layer norm, x is x - mean(x) here.
void lower_norm_in_steps(Lowering& lowering, const Node& node) {
  using F = PointwiseFunction;
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  TensorId x = lowering.plain(node.input(0));
  std::vector<int> axes;
  for (int axis = first_axis(lowering, node); axis < builder.shape(x).rank(); ++axis)
    axes.push_back(axis);
  const auto mean = [&](const char* part, TensorId of) {
    return ops::reduce(builder, name + part, of, ReduceKind::kMean, axes, true);
  };
  if (node.op == "LayerNormalization") {
    PointwiseProgram centre;
    const int a = centre.input(0), b = centre.input(1);
    centre.append(F::kSub, a, b);
    x = ops::pointwise(builder, name + ".centred", {x, mean(".mean", x)}, centre);
  }
  PointwiseProgram square, scale;
  const int value = square.input(0);
  square.append(F::kMul, value, value);
  const TensorId squares = ops::pointwise(builder, name + ".squares", {x}, square);
  const int sum =
      scale.append(F::kAdd, scale.input(0), scale.constant(node.number("epsilon", 1e-5f)));
  const int normed = scale.append(F::kDiv, scale.input(1), scale.append(F::kSqrt, sum));
  int result = scale.append(F::kMul, normed, scale.input(2));
  std::vector<TensorId> inputs = {mean(".variance", squares), x, lowering.plain(node.input(1))};
  if (node.input(2) >= 0) {
    result = scale.append(F::kAdd, result, scale.input(3));
    inputs.push_back(lowering.plain(node.input(2)));
  }
  scale.set_result(result);
  lowering.set(node.output(0), ops::pointwise(builder, name, inputs, scale));
}

}  // namespace

void lower_layer_normalization(Lowering& lowering, const Node& node) {
  const Extents& extents = lowering.value(node.input(0)).extents;
  const int64_t columns = extents.back();
  if (first_axis(lowering, node) + 1 != static_cast<int>(extents.size()) ||
      !is_unshared_parameter(lowering, node.input(1), columns) ||
      (node.input(2) >= 0 && !is_unshared_parameter(lowering, node.input(2), columns)))
    return lower_norm_in_steps(lowering, node);
  const TensorId x = lowering.plain(node.input(0));
  const TensorId gain = unshared_parameter_or_none(lowering, node.input(1));
  const TensorId bias = unshared_parameter_or_none(lowering, node.input(2));
  const auto [sum, y] = ops::layer_norm(lowering.builder(),
                                        lowering.name_of(node),
                                        x,
                                        kNoTensor,
                                        gain,
                                        bias,
                                        node.number("epsilon", 1e-5f));
  lowering.set(node.output(0), y);
}

void lower_rms_normalization(Lowering& lowering, const Node& node) {
  const Extents& extents = lowering.value(node.input(0)).extents;
  if (first_axis(lowering, node) + 1 != static_cast<int>(extents.size()) ||
      !is_unshared_parameter(lowering, node.input(1), extents.back()))
    return lower_norm_in_steps(lowering, node);
  const TensorId x = lowering.plain(node.input(0));
  const TensorId gain = unshared_parameter_or_none(lowering, node.input(1));
  const auto [sum, y] = ops::rms_norm(lowering.builder(),
                                      lowering.name_of(node),
                                      x,
                                      kNoTensor,
                                      gain,
                                      node.number("epsilon", 1e-5f));
  lowering.set(node.output(0), y);
}

}  // namespace lockstep::onnx

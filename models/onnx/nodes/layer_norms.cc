// Layer norm and RMS norm.
#include <algorithm>

#include "models/onnx/nodes/lowering/pointwise.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/reduce.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::onnx {
namespace {

// Outputs: the result, and for each row the mean and the inverse standard deviation.
std::vector<Form> rule_layer(const NodeView& node) {
  node.require_inputs(2, 3);
  node.require_floating(0);
  const size_t axis = node.axis(node.integer("axis", -1), node.rank(0));
  for (size_t index = 1; index < node.inputs(); ++index)
    if (node.has(index) && broadcast(node, node.extents(0), node.extents(index)) != node.extents(0))
      node.refuse("its input {} has extents {}; must be broadcastable to {}",
                  index,
                  to_string(node.extents(index)),
                  to_string(node.extents(0)));
  Form statistics{ElementType::kFloat, node.extents(0)};
  if (node.integer("stash_type", 1) != 1) statistics.type = node.type(0);
  std::fill(statistics.extents.begin() + static_cast<int64_t>(axis), statistics.extents.end(), 1);
  return {node.form(0), statistics, statistics};
}

// The first normalised axis.
int first_axis(Lowering& lowering, const Node& node) {
  return axis_of(node.integer("axis", -1), lowering.value(node.input(0)).extents.size());
}

// The norm as single ops, for several normalised axes and for gains and biases that the native op
// does not take: x / sqrt(mean(x^2) + epsilon) gain + bias. In a layer norm, x is x - mean(x) here.
void lower_norm_in_steps(Lowering& lowering, const Node& node) {
  using F = graph::PointwiseFunction;
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  TensorId x = input_of(lowering, node, 0);
  std::vector<int> axes;
  for (int axis = first_axis(lowering, node); axis < builder.shape(x).rank(); ++axis)
    axes.push_back(axis);
  const auto mean = [&](const char* part, TensorId of) {
    return ops::reduce(builder, name + part, of, graph::ReduceKind::kMean, axes, true);
  };
  if (node.op == "LayerNormalization") {
    x = append_function(builder, name + ".centred", F::kSub, x, mean(".mean", x));
  }
  graph::PointwiseProgram scale;
  const TensorId squares = append_squares(builder, name + ".squares", x);
  const int sum =
      scale.append(F::kAdd, scale.input(0), scale.constant(node.number("epsilon", 1e-5f)));
  const int normed = scale.append(F::kDiv, scale.input(1), scale.append(F::kSqrt, sum));
  int result = scale.append(F::kMul, normed, scale.input(2));
  std::vector<TensorId> inputs = {mean(".variance", squares), x, input_of(lowering, node, 1)};
  if (node.input(2) >= 0) {
    result = scale.append(F::kAdd, result, scale.input(3));
    inputs.push_back(input_of(lowering, node, 2));
  }
  scale.set_result(result);
  set_output(lowering, node, ops::pointwise(builder, name, inputs, scale));
}

// The native norms are over the last axis, with gains and biases that only this node reads.
void lower_layer_normalization(Lowering& lowering, const Node& node) {
  const Extents& extents = lowering.value(node.input(0)).extents;
  bool native = first_axis(lowering, node) + 1 == static_cast<int>(extents.size());
  const auto parameter_of = [&](int number) {
    const int parameter = number < 0 ? -1 : unshared_parameter(lowering, number);
    native &= number < 0 ||
              (parameter >= 0 && lowering.value(parameter).extents == Extents{extents.back()});
    return parameter;
  };
  const int gain = parameter_of(node.input(1)), bias = parameter_of(node.input(2));
  if (!native || (node.op == "RMSNormalization" && bias >= 0))
    return lower_norm_in_steps(lowering, node);
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const float epsilon = node.number("epsilon", 1e-5f);
  const TensorId x = input_of(lowering, node, 0);
  const TensorId gamma = lowering.parameters().unshared(gain);
  const TensorId beta = bias < 0 ? kNoTensor : lowering.parameters().unshared(bias);
  set_output(lowering,
             node,
             node.op == "LayerNormalization"
                 ? ops::layer_norm(builder, name, x, kNoTensor, gamma, beta, epsilon).second
                 : ops::rms_norm(builder, name, x, kNoTensor, gamma, epsilon).second);
}

constexpr NodeType kNodes[] = {
    {"LayerNormalization", rule_layer, lower_layer_normalization},
    {"RMSNormalization", rule_layer, lower_layer_normalization},
};

}  // namespace

std::span<const NodeType> layer_norm_nodes() { return kNodes; }

}  // namespace lockstep::onnx

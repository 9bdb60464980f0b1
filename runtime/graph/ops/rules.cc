#include "runtime/graph/ops/rules.h"

#include "runtime/graph/ops/pointwise.h"

namespace lockstep::graph {
namespace {

bool is_computed(const Graph& graph, TensorId weight) {
  return weight != kNoTensor && graph[weight].role != Role::kParameter;
}

}  // namespace

std::pair<TensorId, bool> weight_gradient(GradientBuilder& builder, TensorId weight) {
  if (!is_computed(builder.graph(), weight)) return builder.parameter_gradient(weight);
  if (!builder.needs_gradient(weight)) return {kNoTensor, false};
  const Tensor& tensor = builder.graph()[weight];
  return {builder.new_statistics("d_" + tensor.name, tensor.shape), false};
}

TensorId passed_on(GradientBuilder& builder,
                   const std::string& name,
                   TensorId weight,
                   TensorId gradient) {
  if (gradient == kNoTensor || !is_computed(builder.graph(), weight) ||
      !builder.needs_gradient(weight))
    return kNoTensor;
  if (builder.graph()[weight].dtype == DType::kF32) return gradient;
  const Shape shape = builder.graph().shape(weight);
  const TensorId rounded = builder.new_gradient(weight);
  PointwiseProgram same;
  same.input(0);
  builder.append(pointwise_op(name + ".rounded", {{gradient, shape}}, same, rounded));
  return rounded;
}

OpInputs first_input_gradient(GradientBuilder& builder,
                              const Op& op,
                              OpKind kind,
                              OpInputs inputs) {
  OpInputs gradients(op.inputs.size(), kNoTensor);
  gradients.front() = builder.new_gradient(op.inputs.front());
  builder.append({kind, op.name, std::move(inputs), {gradients.front()}, op.attributes});
  return gradients;
}

}  // namespace lockstep::graph

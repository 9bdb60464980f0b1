#include "runtime/graph/ops/gated_activation.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::gated_activation(GraphBuilder& builder,
                               const std::string& name,
                               TensorId x,
                               Activation activation) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() > 0 && shape.columns() % 2 == 0, "{}: x {} ", name, to_string(shape));
  Shape half;
  for (int k = 0; k + 1 < shape.rank(); ++k) half.append(shape[k]);
  half.append(shape.columns() / 2);
  const TensorId y = builder.activation_tensor(name, half);
  builder.append({OpKind::kGatedActivation, name, {x}, {y}, ActivationAttributes{activation}});
  return y;
}

namespace {

OpInputs gated_activation_gradient(GradientBuilder& builder,
                                   const Op& op,
                                   const OpOutputs& d_outputs) {
  return first_input_gradient(
      builder,
      op,
      OpKind::kGatedActivationBackward,
      {d_outputs[GatedActivationOut::kY], op.inputs[GatedActivationIn::kX]});
}

int64_t gated_activation_flops(const Graph& graph, const Op& op) {
  return 11 * graph.shape(op.outputs[GatedActivationOut::kY]).elements();
}

}  // namespace

const OpSchema kGatedActivationSchema = {
    gated_activation_gradient, gated_activation_flops, {}, /*joins_lanes=*/true};
const OpSchema kGatedActivationBackwardSchema = {
    nullptr,
    elementwise_flops<kActivationBackwardFlops + 12>,
    {{GatedActivationBackwardOut::kDX, GatedActivationBackwardIn::kX}},
    /*joins_lanes=*/true};

}  // namespace lockstep::graph

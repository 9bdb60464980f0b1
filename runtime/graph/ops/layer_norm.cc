#include "runtime/graph/ops/layer_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

std::pair<TensorId, TensorId> ops::layer_norm(GraphBuilder& builder,
                                              const std::string& name,
                                              TensorId x,
                                              TensorId delta,
                                              TensorId gamma,
                                              TensorId beta,
                                              float epsilon) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(builder.shape(gamma) == Shape({shape.columns()}), "{}: gamma ", name);
  LOCKSTEP_CHECK(delta == kNoTensor || builder.shape(delta) == shape, "{}: delta ", name);
  const TensorId y = builder.activation_tensor(name, shape);
  const TensorId sum =
      delta == kNoTensor ? kNoTensor : builder.activation_tensor(name + ".sum", shape);
  const TensorId mean = builder.statistics_tensor(name + ".mean", {shape.rows()});
  const TensorId rstd = builder.statistics_tensor(name + ".rstd", {shape.rows()});
  builder.append({OpKind::kLayerNorm,
                  name,
                  {x, delta, gamma, beta},
                  {y, sum, mean, rstd},
                  LayerNormAttributes{epsilon}});
  return {sum == kNoTensor ? x : sum, y};
}

namespace {

OpInputs layer_norm_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  // If y feeds only ops without gradients, the gradient of the sum is all there is.
  if (d_outputs[LayerNormOut::kY] == kNoTensor)
    return {d_outputs[LayerNormOut::kSum], d_outputs[LayerNormOut::kSum], kNoTensor, kNoTensor};
  const bool residual = op.inputs[LayerNormIn::kDelta] != kNoTensor;
  const TensorId sum = residual ? op.outputs[LayerNormOut::kSum] : op.inputs[LayerNormIn::kX];
  const TensorId d_sum = builder.new_gradient(sum);
  const TensorId d_gamma = unshared_gradient(builder, op, op.inputs[LayerNormIn::kGamma]);
  const TensorId d_beta = unshared_gradient(builder, op, op.inputs[LayerNormIn::kBeta]);
  builder.append({OpKind::kLayerNormBackward,
                  op.name,
                  {d_outputs[LayerNormOut::kY],
                   residual ? d_outputs[LayerNormOut::kSum] : kNoTensor,
                   sum,
                   op.inputs[LayerNormIn::kGamma],
                   op.outputs[LayerNormOut::kMean],
                   op.outputs[LayerNormOut::kRstd]},
                  {d_sum, d_gamma, d_beta},
                  op.attributes});
  return {d_sum, residual ? d_sum : kNoTensor, kNoTensor, kNoTensor};
}

}  // namespace

const OpSchema kLayerNormSchema = {
    layer_norm_gradient,
    elementwise_flops<9>,
    {{LayerNormOut::kSum, LayerNormIn::kX}, {LayerNormOut::kSum, LayerNormIn::kDelta}}};
const OpSchema kLayerNormBackwardSchema = {
    nullptr,
    elementwise_flops<14>,
    {{LayerNormBackwardOut::kDSum, LayerNormBackwardIn::kDResidual},
     {LayerNormBackwardOut::kDSum, LayerNormBackwardIn::kDY}}};

}  // namespace lockstep::graph

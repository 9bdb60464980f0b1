#include "runtime/graph/ops/rms_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

std::pair<TensorId, TensorId> ops::rms_norm(GraphBuilder& builder,
                                            const std::string& name,
                                            TensorId x,
                                            TensorId delta,
                                            TensorId gamma,
                                            float epsilon) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(builder.shape(gamma) == Shape({shape.columns()}), "{}: gamma ", name);
  LOCKSTEP_CHECK(delta == kNoTensor || builder.shape(delta) == shape, "{}: delta ", name);
  const TensorId y = builder.activation_tensor(name, shape);
  const TensorId sum =
      delta == kNoTensor ? kNoTensor : builder.activation_tensor(name + ".sum", shape);
  const TensorId rstd = builder.statistics_tensor(name + ".rstd", {shape.rows()});
  builder.append(
      {OpKind::kRmsNorm, name, {x, delta, gamma}, {y, sum, rstd}, RmsNormAttributes{epsilon}});
  return {sum == kNoTensor ? x : sum, y};
}

namespace {

OpInputs rms_norm_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  // If y feeds only ops without gradients, the gradient of the sum is all there is.
  if (d_outputs[RmsNormOut::kY] == kNoTensor)
    return {d_outputs[RmsNormOut::kSum], d_outputs[RmsNormOut::kSum], kNoTensor};
  const bool residual = op.inputs[RmsNormIn::kDelta] != kNoTensor;
  const TensorId sum = residual ? op.outputs[RmsNormOut::kSum] : op.inputs[RmsNormIn::kX];
  const TensorId d_residual = residual ? d_outputs[RmsNormOut::kSum] : kNoTensor;
  const TensorId d_sum = builder.new_gradient(sum);
  const TensorId d_gamma = unshared_gradient(builder, op, op.inputs[RmsNormIn::kGamma]);
  builder.append({OpKind::kRmsNormBackward,
                  op.name,
                  {d_outputs[RmsNormOut::kY],
                   d_residual,
                   sum,
                   op.inputs[RmsNormIn::kGamma],
                   op.outputs[RmsNormOut::kRstd]},
                  {d_sum, d_gamma},
                  {}});
  return {d_sum, residual ? d_sum : kNoTensor, kNoTensor};
}

}  // namespace

const OpSchema kRmsNormSchema = {
    rms_norm_gradient,
    elementwise_flops<4>,
    {{RmsNormOut::kSum, RmsNormIn::kX}, {RmsNormOut::kSum, RmsNormIn::kDelta}}};
const OpSchema kRmsNormBackwardSchema = {
    nullptr,
    elementwise_flops<9>,
    {{RmsNormBackwardOut::kDSum, RmsNormBackwardIn::kDResidual},
     {RmsNormBackwardOut::kDSum, RmsNormBackwardIn::kDY}}};

}  // namespace lockstep::graph

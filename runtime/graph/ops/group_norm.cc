#include "runtime/graph/ops/group_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::group_norm(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         TensorId gamma,
                         TensorId beta,
                         const GroupNormAttributes& attributes) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(
      shape.rank() >= 2 && attributes.groups > 0 && shape.columns() % attributes.groups == 0,
      "{}: {} groups of {} ",
      name,
      attributes.groups,
      to_string(shape));
  for (const TensorId row : {gamma, beta})
    LOCKSTEP_CHECK(row == kNoTensor || builder.shape(row).elements() == shape.columns(),
                   "{}: gamma and beta ",
                   name);
  const TensorId y = builder.activation_tensor(name, shape);
  const TensorId mean = builder.statistics_tensor(name + ".mean", {shape[0], attributes.groups});
  const TensorId rstd = builder.statistics_tensor(name + ".rstd", {shape[0], attributes.groups});
  builder.append({OpKind::kGroupNorm, name, {x, gamma, beta}, {y, mean, rstd}, attributes});
  return y;
}

namespace {

OpInputs group_norm_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[GroupNormIn::kX]);
  const TensorId d_gamma = unshared_gradient(builder, op, op.inputs[GroupNormIn::kGamma]);
  const TensorId d_beta = unshared_gradient(builder, op, op.inputs[GroupNormIn::kBeta]);
  builder.append({OpKind::kGroupNormBackward,
                  op.name,
                  {d_outputs[GroupNormOut::kY],
                   op.inputs[GroupNormIn::kX],
                   op.inputs[GroupNormIn::kGamma],
                   op.outputs[GroupNormOut::kMean],
                   op.outputs[GroupNormOut::kRstd]},
                  {d_x, d_gamma, d_beta},
                  op.attributes});
  return {d_x, kNoTensor, kNoTensor};
}

}  // namespace

const OpSchema kGroupNormSchema = {group_norm_gradient, elementwise_flops<8>, {}};
const OpSchema kGroupNormBackwardSchema = {
    nullptr, elementwise_flops<12>, {{GroupNormBackwardOut::kDX, GroupNormBackwardIn::kDY}}};

}  // namespace lockstep::graph

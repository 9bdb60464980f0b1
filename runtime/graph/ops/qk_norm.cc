#include "runtime/graph/ops/qk_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::qk_norm(GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      TensorId gamma_q,
                      TensorId gamma_k,
                      const QkNormAttributes& attributes) {
  const Shape shape = builder.shape(x), gamma = builder.shape(gamma_q);
  LOCKSTEP_CHECK(shape.rank() == 3 &&
                     shape[2] == (attributes.heads + 2 * attributes.kv_heads) * gamma.elements(),
                 "{}: x {} ",
                 name,
                 to_string(shape));
  LOCKSTEP_CHECK(gamma.rank() == 1 && builder.shape(gamma_k) == gamma, "{}: gammas ", name);
  const TensorId y = builder.activation_tensor(name, shape);
  const TensorId rstd_q =
      builder.statistics_tensor(name + ".rstd_q", {shape[0], shape[1], attributes.heads});
  const TensorId rstd_k =
      builder.statistics_tensor(name + ".rstd_k", {shape[0], shape[1], attributes.kv_heads});
  builder.append({OpKind::kQkNorm, name, {x, gamma_q, gamma_k}, {y, rstd_q, rstd_k}, attributes});
  return y;
}

namespace {

OpInputs qk_norm_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[QkNormIn::kX]);
  const TensorId d_gamma_q = unshared_gradient(builder, op, op.inputs[QkNormIn::kGammaQ]);
  const TensorId d_gamma_k = unshared_gradient(builder, op, op.inputs[QkNormIn::kGammaK]);
  builder.append({OpKind::kQkNormBackward,
                  op.name,
                  {d_outputs[QkNormOut::kY],
                   op.inputs[QkNormIn::kX],
                   op.inputs[QkNormIn::kGammaQ],
                   op.inputs[QkNormIn::kGammaK],
                   op.outputs[QkNormOut::kRstdQ],
                   op.outputs[QkNormOut::kRstdK]},
                  {d_x, d_gamma_q, d_gamma_k},
                  op.attributes});
  return {d_x, kNoTensor, kNoTensor};
}

}  // namespace

const OpSchema kQkNormSchema = {qk_norm_gradient, elementwise_flops<4>, {}};
const OpSchema kQkNormBackwardSchema = {
    nullptr, elementwise_flops<9>, {{QkNormBackwardOut::kDX, QkNormBackwardIn::kDY}}};

}  // namespace lockstep::graph

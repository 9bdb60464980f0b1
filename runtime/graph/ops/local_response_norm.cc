// local_response_norm: y_c = x_c / s_c^beta, s_c = k + alpha / size * sum of x^2 over the `size`
// channels from c - size / 2 on (Krizhevsky et al. 2012, section 3.3, with the sum's mean).
//   inputs x (..., C); outputs y (..., C)
// local_response_norm_backward: d_x_j = d_y_j / s_j^beta - 2 alpha beta / size x_j * sum of d_y_c
// x_c / s_c^(beta + 1) over the channels c whose windows hold j.
//   inputs d_y, x; outputs d_x
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::local_response_norm(const std::string& name,
                                           TensorId x,
                                           const LocalResponseNormAttributes& attributes) {
  const TensorId y = activation_tensor(name, graph_.shape(x));
  graph_.ops.push_back({OpKind::kLocalResponseNorm, name, {x}, {y}, attributes});
  return y;
}

namespace {

std::vector<TensorId> local_response_norm_gradient(GradientBuilder& builder,
                                                   const Op& op,
                                                   const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  builder.append({OpKind::kLocalResponseNormBackward,
                  op.name,
                  {d_outputs[0], op.inputs[0]},
                  {d_x},
                  op.attributes});
  return {d_x};
}

}  // namespace

const OpSchema kLocalResponseNormSchema = {
    "local_response_norm", local_response_norm_gradient, elementwise_flops<16>, {}};
const OpSchema kLocalResponseNormBackwardSchema = {
    "local_response_norm_backward", nullptr, elementwise_flops<32>, {}};

}  // namespace lockstep

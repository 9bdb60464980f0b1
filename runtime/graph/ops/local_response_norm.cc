#include "runtime/graph/ops/local_response_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId ops::local_response_norm(GraphBuilder& builder,
                                  const std::string& name,
                                  TensorId x,
                                  const LocalResponseNormAttributes& attributes) {
  const TensorId y = builder.activation_tensor(name, builder.shape(x));
  builder.append({OpKind::kLocalResponseNorm, name, {x}, {y}, attributes});
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

const OpSchema kLocalResponseNormSchema = {local_response_norm_gradient, elementwise_flops<16>, {}};
const OpSchema kLocalResponseNormBackwardSchema = {nullptr, elementwise_flops<32>, {}};

}  // namespace lockstep

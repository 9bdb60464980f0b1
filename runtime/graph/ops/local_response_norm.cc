#include "runtime/graph/ops/local_response_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::local_response_norm(GraphBuilder& builder,
                                  const std::string& name,
                                  TensorId x,
                                  const LocalResponseNormAttributes& attributes) {
  const TensorId y = builder.activation_tensor(name, builder.shape(x));
  builder.append({OpKind::kLocalResponseNorm, name, {x}, {y}, attributes});
  return y;
}

namespace {

OpInputs local_response_norm_gradient(GradientBuilder& builder,
                                      const Op& op,
                                      const OpOutputs& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[LocalResponseNormIn::kX]);
  builder.append({OpKind::kLocalResponseNormBackward,
                  op.name,
                  {d_outputs[LocalResponseNormOut::kY], op.inputs[LocalResponseNormIn::kX]},
                  {d_x},
                  op.attributes});
  return {d_x};
}

}  // namespace

const OpSchema kLocalResponseNormSchema = {
    local_response_norm_gradient, elementwise_flops<16, LocalResponseNormIn::kX>, {}};
const OpSchema kLocalResponseNormBackwardSchema = {
    nullptr, elementwise_flops<32, LocalResponseNormBackwardIn::kDY>, {}};

}  // namespace lockstep::graph

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
  return first_input_gradient(
      builder,
      op,
      OpKind::kLocalResponseNormBackward,
      {d_outputs[LocalResponseNormOut::kY], op.inputs[LocalResponseNormIn::kX]});
}

}  // namespace

const OpSchema kLocalResponseNormSchema = {local_response_norm_gradient, elementwise_flops<16>, {}};
const OpSchema kLocalResponseNormBackwardSchema = {nullptr, elementwise_flops<32>, {}};

}  // namespace lockstep::graph

#include "runtime/graph/ops/token_pooling.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::token_pooling(GraphBuilder& builder,
                            const std::string& name,
                            TensorId x,
                            TensorId documents) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 3, "{}: x {} ", name, to_string(shape));
  LOCKSTEP_CHECK(builder.shape(documents) == Shape({shape[0], shape[1]}), "{}: documents ", name);
  const TensorId y = builder.activation_tensor(name, {shape[0], shape[2]});
  builder.append({OpKind::kTokenPooling, name, {x, documents}, {y}, {}});
  return y;
}

namespace {

OpInputs token_pooling_gradient(GradientBuilder& builder,
                                const Op& op,
                                const OpOutputs& d_outputs) {
  return first_input_gradient(
      builder,
      op,
      OpKind::kTokenPoolingBackward,
      {d_outputs[TokenPoolingOut::kY], op.inputs[TokenPoolingIn::kDocuments]});
}

}  // namespace

const OpSchema kTokenPoolingSchema = {token_pooling_gradient, elementwise_flops<1>, {}};
const OpSchema kTokenPoolingBackwardSchema = {nullptr, elementwise_flops<1>, {}};

}  // namespace lockstep::graph

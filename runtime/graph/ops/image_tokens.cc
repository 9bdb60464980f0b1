#include "runtime/graph/ops/image_tokens.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId ops::image_tokens(GraphBuilder& builder,
                           const std::string& name,
                           TensorId x,
                           TensorId class_token,
                           TensorId position) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4, "{}: x {} ", name, to_string(shape));
  const int64_t tokens = shape[1] * shape[2] + 1, width = shape[3];
  LOCKSTEP_CHECK(builder.shape(class_token) == Shape({width}), "{}: class token ", name);
  LOCKSTEP_CHECK(builder.shape(position) == Shape({tokens, width}), "{}: positions ", name);
  const TensorId y = builder.activation_tensor(name, {shape[0], tokens, width});
  builder.append({OpKind::kImageTokens, name, {x, class_token, position}, {y}, {}});
  return y;
}

namespace {

std::vector<TensorId> image_tokens_gradient(GradientBuilder& builder,
                                            const Op& op,
                                            const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  const TensorId d_class_token = unshared_gradient(builder, op, op.inputs[1]);
  const TensorId d_position = unshared_gradient(builder, op, op.inputs[2]);
  builder.append({OpKind::kImageTokensBackward,
                  op.name,
                  {d_outputs[0]},
                  {d_x, d_class_token, d_position},
                  op.attributes});
  return {d_x, kNoTensor, kNoTensor};
}

}  // namespace

const OpSchema kImageTokensSchema = {image_tokens_gradient, elementwise_flops<1>, {}};
const OpSchema kImageTokensBackwardSchema = {nullptr, elementwise_flops<1>, {}};

}  // namespace lockstep

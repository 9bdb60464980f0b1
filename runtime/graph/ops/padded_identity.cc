#include "runtime/graph/ops/padded_identity.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"
#include "runtime/graph/window.h"

namespace lockstep {

TensorId ops::padded_identity(GraphBuilder& builder,
                              const std::string& name,
                              TensorId x,
                              const PaddedIdentityAttributes& attributes) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4, "{}: x {} ", name, to_string(shape));
  const TensorId y = builder.activation_tensor(name,
                                               {shape[0],
                                                window_count(shape[1], 1, attributes.stride, 0),
                                                window_count(shape[2], 1, attributes.stride, 0),
                                                attributes.before + shape[3] + attributes.after});
  builder.append({OpKind::kPaddedIdentity, name, {x}, {y}, attributes});
  return y;
}

namespace {

std::vector<TensorId> padded_identity_gradient(GradientBuilder& builder,
                                               const Op& op,
                                               const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  builder.append({OpKind::kPaddedIdentityBackward, op.name, {d_outputs[0]}, {d_x}, op.attributes});
  return {d_x};
}

int64_t no_flops(const Graph&, const Op&) { return 0; }

}  // namespace

const OpSchema kPaddedIdentitySchema = {padded_identity_gradient, no_flops, {}};
const OpSchema kPaddedIdentityBackwardSchema = {nullptr, no_flops, {}};

}  // namespace lockstep

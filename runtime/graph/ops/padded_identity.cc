// padded_identity: every stride-th pixel of x in both directions, with channels of zeros before and
// after its own: the shortcut without parameters of He et al. 2015 (option A).
//   inputs x (N, H, W, C); outputs y (N, ceil(H / stride), ceil(W / stride), before + C + after)
// padded_identity_backward: d_x = d_y at those pixels, zero at the others. inputs d_y; outputs d_x
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"
#include "runtime/graph/window.h"

namespace lockstep {

TensorId GraphBuilder::padded_identity(const std::string& name,
                                       TensorId x,
                                       const PaddedIdentityAttributes& attributes) {
  const Shape shape = graph_.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4, "{}: x {} ", name, to_string(shape));
  const TensorId y = activation_tensor(name,
                                       {shape[0],
                                        window_count(shape[1], 1, attributes.stride, 0),
                                        window_count(shape[2], 1, attributes.stride, 0),
                                        attributes.before + shape[3] + attributes.after});
  graph_.ops.push_back({OpKind::kPaddedIdentity, name, {x}, {y}, attributes});
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

const OpSchema kPaddedIdentitySchema = {"padded_identity", padded_identity_gradient, no_flops, {}};
const OpSchema kPaddedIdentityBackwardSchema = {"padded_identity_backward", nullptr, no_flops, {}};

}  // namespace lockstep

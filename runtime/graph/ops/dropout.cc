// dropout: y = x * keep / (1 - p), keep drawn from the counter-based stream (seed, step, lane, this
// dropout's number, element).
//   inputs x; outputs y
// dropout_backward: the same mask, drawn again, applied to the gradient. inputs d_y; outputs d_x
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::dropout(const std::string& name, TensorId x, float probability) {
  if (!training() || probability == 0) return x;
  const TensorId y = activation_tensor(name, graph_.shape(x));
  graph_.ops.push_back(
      {OpKind::kDropout, name, {x}, {y}, DropoutAttributes{probability, dropouts_++}});
  return y;
}

namespace {

std::vector<TensorId> dropout_gradient(GradientBuilder& builder,
                                       const Op& op,
                                       const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  builder.append({OpKind::kDropoutBackward, op.name, {d_outputs[0]}, {d_x}, op.attributes});
  return {d_x};
}

}  // namespace

const OpSchema kDropoutSchema = {"dropout", dropout_gradient, elementwise_flops<2>, {{0, 0}}};
const OpSchema kDropoutBackwardSchema = {
    "dropout_backward", nullptr, elementwise_flops<2>, {{0, 0}}};

}  // namespace lockstep

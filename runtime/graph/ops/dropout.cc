#include "runtime/graph/ops/dropout.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::dropout(GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      float probability) {
  if (!builder.training() || probability == 0) return x;
  const TensorId y = builder.activation_tensor(name, builder.shape(x));
  builder.append({OpKind::kDropout,
                  name,
                  {x},
                  {y},
                  DropoutAttributes{probability, builder.new_random_stream()}});
  return y;
}

namespace {

OpInputs dropout_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[DropoutIn::kX]);
  builder.append(
      {OpKind::kDropoutBackward, op.name, {d_outputs[DropoutOut::kY]}, {d_x}, op.attributes});
  return {d_x};
}

}  // namespace

const OpSchema kDropoutSchema = {
    dropout_gradient, elementwise_flops<2, DropoutIn::kX>, {{DropoutOut::kY, DropoutIn::kX}}};
const OpSchema kDropoutBackwardSchema = {
    nullptr, elementwise_flops<2, DropoutIn::kX>, {{DropoutOut::kY, DropoutIn::kX}}};

}  // namespace lockstep::graph

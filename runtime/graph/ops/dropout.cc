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
  return first_input_gradient(builder, op, OpKind::kDropoutBackward, {d_outputs[DropoutOut::kY]});
}

}  // namespace

const OpSchema kDropoutSchema = {
    dropout_gradient, elementwise_flops<2>, {{DropoutOut::kY, DropoutIn::kX}}};
const OpSchema kDropoutBackwardSchema = {
    nullptr, elementwise_flops<2>, {{DropoutOut::kY, DropoutIn::kX}}};

}  // namespace lockstep::graph

#include "runtime/graph/ops/softmax.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::softmax(GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      SoftmaxForm form) {
  LOCKSTEP_CHECK(builder[x].role != Role::kParameter, "{}: a parameter as input ", name);
  LOCKSTEP_CHECK(builder[x].padded_columns == 0, "{}: an input of padded rows ", name);
  const TensorId y = builder.tensor(name, builder.shape(x), builder[x].dtype, Role::kActivation);
  builder.append({OpKind::kSoftmax, name, {x}, {y}, SoftmaxAttributes{form}});
  return y;
}

namespace {

OpInputs softmax_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  if (!builder.needs_gradient(op.inputs[SoftmaxIn::kX])) return {kNoTensor};
  return first_input_gradient(builder,
                              op,
                              OpKind::kSoftmaxBackward,
                              {d_outputs[SoftmaxOut::kY], op.outputs[SoftmaxOut::kY]});
}

}  // namespace

const OpSchema kSoftmaxSchema = {
    softmax_gradient, elementwise_flops<12>, {{SoftmaxOut::kY, SoftmaxIn::kX}}};
const OpSchema kSoftmaxBackwardSchema = {nullptr,
                                         elementwise_flops<4>,
                                         {{SoftmaxBackwardOut::kDX, SoftmaxBackwardIn::kDY},
                                          {SoftmaxBackwardOut::kDX, SoftmaxBackwardIn::kY}}};

}  // namespace lockstep::graph

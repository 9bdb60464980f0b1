#include "runtime/graph/ops/add.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::add(GraphBuilder& builder, const std::string& name, TensorId a, TensorId b) {
  LOCKSTEP_CHECK(builder.shape(a) == builder.shape(b),
                 "{}: {} + {} ",
                 name,
                 to_string(builder.shape(a)),
                 to_string(builder.shape(b)));
  const TensorId y = builder.activation_tensor(name, builder.shape(a));
  builder.append({OpKind::kAdd, name, {a, b}, {y}, {}});
  return y;
}

namespace {

OpInputs add_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const auto pass = [&](TensorId input) {
    return builder.needs_gradient(input) ? d_outputs[AddOut::kY] : kNoTensor;
  };
  return {pass(op.inputs[AddIn::kA]), pass(op.inputs[AddIn::kB])};
}

}  // namespace

const OpSchema kAddSchema = {add_gradient,
                             elementwise_flops<1>,
                             {{AddOut::kY, AddIn::kA}, {AddOut::kY, AddIn::kB}},
                             /*joins_lanes=*/true};

}  // namespace lockstep::graph

#include "runtime/graph/ops/add.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

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

std::vector<TensorId> add_gradient(GradientBuilder& builder,
                                   const Op& op,
                                   const std::vector<TensorId>& d_outputs) {
  const auto pass = [&](TensorId input) {
    return builder.needs_gradient(input) ? d_outputs[0] : kNoTensor;
  };
  return {pass(op.inputs[0]), pass(op.inputs[1])};
}

}  // namespace

const OpSchema kAddSchema = {add_gradient, elementwise_flops<1>, {{0, 0}, {0, 1}}};

}  // namespace lockstep

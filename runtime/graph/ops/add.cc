// add: y = a + b. inputs a, b; outputs y. Its gradient is passed through to both.
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::add(const std::string& name, TensorId a, TensorId b) {
  LOCKSTEP_CHECK(graph_.shape(a) == graph_.shape(b),
                 "{}: {} + {} ",
                 name,
                 to_string(graph_.shape(a)),
                 to_string(graph_.shape(b)));
  const TensorId y = activation_tensor(name, graph_.shape(a));
  graph_.ops.push_back({OpKind::kAdd, name, {a, b}, {y}, {}});
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

const OpSchema kAddSchema = {"add", add_gradient, elementwise_flops<1>, {{0, 0}, {0, 1}}};

}  // namespace lockstep

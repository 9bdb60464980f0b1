#include "runtime/graph/ops/random_normal.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::random_normal(
    GraphBuilder& builder, const std::string& name, const Shape& shape, float mean, float scale) {
  LOCKSTEP_CHECK(shape.rank() >= 1 && shape.elements() > 0, "{} ", name);
  const TensorId y = builder.activation_tensor(name, shape);
  builder.append({OpKind::kRandomNormal,
                  name,
                  {},
                  {y},
                  RandomNormalAttributes{mean, scale, builder.new_random_stream()}});
  return y;
}

namespace {

// Per element: ten rounds of the generator and the normal quantile.
int64_t random_normal_flops(const Graph& graph, const Op& op) {
  return 30 * graph.shape(op.outputs[RandomNormalOut::kY]).elements();
}

}  // namespace

const OpSchema kRandomNormalSchema = {nullptr, random_normal_flops, {}};

}  // namespace lockstep::graph

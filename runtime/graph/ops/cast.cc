// cast: y = x in the graph's compute type. Stands where inputs enter the graph; it has no gradient.
//   inputs x; outputs y
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::cast(const std::string& name, TensorId x) {
  if (graph_[x].dtype == options_.compute) return x;
  LOCKSTEP_CHECK(graph_[x].role == Role::kInput, "{}: only inputs are converted ", name);
  const TensorId y = activation_tensor(name, graph_.shape(x));
  graph_.ops.push_back({OpKind::kCast, name, {x}, {y}, {}});
  return y;
}

const OpSchema kCastSchema = {"cast", nullptr, elementwise_flops<1>, {}};

}  // namespace lockstep

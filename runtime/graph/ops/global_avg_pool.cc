// global_avg_pool: y = the mean over all pixels, by image and channel.
//   inputs x (N, H, W, C); outputs y (N, C)
// global_avg_pool_backward: d_x = d_y / (H W). inputs d_y (N, C); outputs d_x (N, H, W, C)
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::global_avg_pool(const std::string& name, TensorId x) {
  const Shape shape = graph_.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4, "{}: x {} ", name, to_string(shape));
  const TensorId y = activation_tensor(name, {shape[0], shape[3]});
  graph_.ops.push_back({OpKind::kGlobalAvgPool, name, {x}, {y}, {}});
  return y;
}

namespace {

std::vector<TensorId> global_avg_pool_gradient(GradientBuilder& builder,
                                               const Op& op,
                                               const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  builder.append({OpKind::kGlobalAvgPoolBackward, op.name, {d_outputs[0]}, {d_x}, {}});
  return {d_x};
}

int64_t backward_flops(const Graph& graph, const Op& op) {
  return graph.shape(op.outputs[0]).elements();
}

}  // namespace

const OpSchema kGlobalAvgPoolSchema = {
    "global_avg_pool", global_avg_pool_gradient, elementwise_flops<1>, {}};
const OpSchema kGlobalAvgPoolBackwardSchema = {
    "global_avg_pool_backward", nullptr, backward_flops, {}};

}  // namespace lockstep

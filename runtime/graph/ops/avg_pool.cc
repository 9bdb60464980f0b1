// avg_pool: y = the mean of each window, by channel; at the border over the kernel's area
// (count_include_pad) or over the pixels that there are.
//   inputs x (N, H, W, C); outputs y (N, OH, OW, C)
// avg_pool_backward: inputs d_y; outputs d_x
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::avg_pool(const std::string& name,
                                TensorId x,
                                const PoolAttributes& attributes) {
  const TensorId y = activation_tensor(name, pool_output(name, graph_.shape(x), attributes));
  graph_.ops.push_back({OpKind::kAvgPool, name, {x}, {y}, attributes});
  return y;
}

namespace {

std::vector<TensorId> avg_pool_gradient(GradientBuilder& builder,
                                        const Op& op,
                                        const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  builder.append({OpKind::kAvgPoolBackward, op.name, {d_outputs[0]}, {d_x}, op.attributes});
  return {d_x};
}

}  // namespace

const OpSchema kAvgPoolSchema = {"avg_pool", avg_pool_gradient, pool_flops, {}};
const OpSchema kAvgPoolBackwardSchema = {"avg_pool_backward", nullptr, pool_flops, {}};

}  // namespace lockstep

// max_pool: y = the largest pixel of each window, by channel; the first one among equals, NaN above
// all.
//   inputs x (N, H, W, C); outputs y (N, OH, OW, C); in training also place (N, OH, OW, C) u8:
//   which tap of the window it was, row by row
// max_pool_backward: d_x = sum of d_y over the windows whose largest pixel this is.
//   inputs d_y, place; outputs d_x
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"
#include "runtime/graph/window.h"

namespace lockstep {

TensorId GraphBuilder::max_pool(const std::string& name,
                                TensorId x,
                                const PoolAttributes& attributes) {
  const Shape shape = pool_output(name, graph_.shape(x), attributes);
  LOCKSTEP_CHECK(
      attributes.kernel.height * attributes.kernel.width <= 256, "{}: the place is a byte ", name);
  std::vector<TensorId> outputs = {activation_tensor(name, shape)};
  if (training()) outputs.push_back(tensor(name + ".place", shape, DType::kU8, Role::kActivation));
  const TensorId y = outputs[0];
  graph_.ops.push_back({OpKind::kMaxPool, name, {x}, outputs, attributes});
  return y;
}

Shape pool_output(const std::string& name, const Shape& x, const PoolAttributes& a) {
  LOCKSTEP_CHECK(x.rank() == 4, "{}: x {} ", name, to_string(x));
  LOCKSTEP_CHECK(a.padding.height < a.kernel.height && a.padding.width < a.kernel.width,
                 "{}: a window must not lie in the padding alone ",
                 name);
  const int64_t height = window_count(x[1], a.kernel.height, a.stride.height, a.padding.height);
  const int64_t width = window_count(x[2], a.kernel.width, a.stride.width, a.padding.width);
  LOCKSTEP_CHECK(
      height > 0 && width > 0, "{}: images {} are smaller than the window ", name, to_string(x));
  return {x[0], height, width, x[3]};
}

int64_t pool_flops(const Graph& graph, const Op& op) {
  const Extent2d kernel = op.as<PoolAttributes>().kernel;
  const bool forward = op.kind == OpKind::kMaxPool || op.kind == OpKind::kAvgPool;
  const TensorId y = forward ? op.outputs[0] : op.inputs[0];
  return graph.shape(y).elements() * kernel.height * kernel.width;
}

namespace {

std::vector<TensorId> max_pool_gradient(GradientBuilder& builder,
                                        const Op& op,
                                        const std::vector<TensorId>& d_outputs) {
  const TensorId d_x = builder.new_gradient(op.inputs[0]);
  builder.append(
      {OpKind::kMaxPoolBackward, op.name, {d_outputs[0], op.outputs[1]}, {d_x}, op.attributes});
  return {d_x};
}

}  // namespace

const OpSchema kMaxPoolSchema = {"max_pool", max_pool_gradient, pool_flops, {}};
const OpSchema kMaxPoolBackwardSchema = {"max_pool_backward", nullptr, pool_flops, {}};

}  // namespace lockstep

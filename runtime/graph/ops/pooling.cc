#include "runtime/graph/ops/pooling.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"
#include "runtime/graph/window.h"

namespace lockstep::graph {

bool windows_see_pixels(int64_t pixels,
                        int64_t windows,
                        int64_t kernel,
                        int64_t stride,
                        int64_t dilation,
                        int64_t padding) {
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t first = i * stride - padding;
    const int64_t before = first < 0 ? (dilation - 1 - first) / dilation : 0;  // taps
    if (before >= kernel || first + before * dilation >= pixels) return false;
  }
  return true;
}

namespace {

// A window that does not fit is a broken invariant.
Shape pool_output(const std::string& name, const Shape& x, const PoolAttributes& a) {
  LOCKSTEP_CHECK(x.rank() == 4, "{}: x {} ", name, to_string(x));
  const Extent2d behind = a.padding_behind();
  // As if padded on one side only.
  const int64_t height = a.outputs.height > 0
                             ? a.outputs.height
                             : window_count(x[1] + a.padding.height + behind.height,
                                            a.kernel.height,
                                            a.stride.height,
                                            0,
                                            a.dilation.height);
  const int64_t width = a.outputs.width > 0 ? a.outputs.width
                                            : window_count(x[2] + a.padding.width + behind.width,
                                                           a.kernel.width,
                                                           a.stride.width,
                                                           0,
                                                           a.dilation.width);
  LOCKSTEP_CHECK(
      height > 0 && width > 0, "{}: images {} are smaller than the window ", name, to_string(x));
  LOCKSTEP_CHECK(
      windows_see_pixels(
          x[1], height, a.kernel.height, a.stride.height, a.dilation.height, a.padding.height) &&
          windows_see_pixels(
              x[2], width, a.kernel.width, a.stride.width, a.dilation.width, a.padding.width),
      "{}: a window must not lie in the padding alone ",
      name);
  return {x[0], height, width, x[3]};
}

// One operation for each tap of each window.
int64_t pool_flops(const Graph& graph, const Op& op) {
  const Extent2d kernel = op.as<PoolAttributes>().kernel;
  const bool forward = op.kind == OpKind::kMaxPool || op.kind == OpKind::kAvgPool;
  const TensorId y = forward ? op.outputs[PoolOut::kY] : op.inputs[PoolBackwardIn::kDY];
  return graph.shape(y).elements() * kernel.height * kernel.width;
}

}  // namespace

TensorId ops::max_pool(GraphBuilder& builder,
                       const std::string& name,
                       TensorId x,
                       const PoolAttributes& attributes) {
  const Shape shape = pool_output(name, builder.shape(x), attributes);
  LOCKSTEP_CHECK(attributes.kernel.height * attributes.kernel.width <= 256,
                 "{}: a window of more than 256 taps ",
                 name);
  const TensorId y = builder.activation_tensor(name, shape);
  OpOutputs outputs = {y};
  if (builder.training())
    outputs.push_back(builder.tensor(name + ".place", shape, DType::kU8, Role::kActivation));
  builder.append({OpKind::kMaxPool, name, {x}, outputs, attributes});
  return y;
}

namespace {

OpInputs max_pool_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  return first_input_gradient(
      builder, op, OpKind::kMaxPoolBackward, {d_outputs[PoolOut::kY], op.outputs[PoolOut::kPlace]});
}

}  // namespace

const OpSchema kMaxPoolSchema = {max_pool_gradient, pool_flops, {}};
const OpSchema kMaxPoolBackwardSchema = {nullptr, pool_flops, {}};

TensorId ops::avg_pool(GraphBuilder& builder,
                       const std::string& name,
                       TensorId x,
                       const PoolAttributes& attributes) {
  LOCKSTEP_CHECK(attributes.dilation == Extent2d{}, "{}: dilation of a mean ", name);
  const TensorId y =
      builder.activation_tensor(name, pool_output(name, builder.shape(x), attributes));
  builder.append({OpKind::kAvgPool, name, {x}, {y}, attributes});
  return y;
}

TensorId ops::adaptive_avg_pool(GraphBuilder& builder,
                                const std::string& name,
                                TensorId x,
                                Extent2d outputs) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4, "{}: x {} ", name, to_string(shape));
  PoolAttributes attributes;
  attributes.adaptive = true;
  attributes.kernel = {(shape[1] + outputs.height - 1) / outputs.height,
                       (shape[2] + outputs.width - 1) / outputs.width};
  attributes.stride = attributes.kernel;
  const TensorId y =
      builder.activation_tensor(name, {shape[0], outputs.height, outputs.width, shape[3]});
  builder.append({OpKind::kAvgPool, name, {x}, {y}, attributes});
  return y;
}

namespace {

OpInputs avg_pool_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  return first_input_gradient(builder, op, OpKind::kAvgPoolBackward, {d_outputs[PoolOut::kY]});
}

}  // namespace

const OpSchema kAvgPoolSchema = {avg_pool_gradient, pool_flops, {}};
const OpSchema kAvgPoolBackwardSchema = {nullptr, pool_flops, {}};

TensorId ops::global_avg_pool(GraphBuilder& builder, const std::string& name, TensorId x) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4, "{}: x {} ", name, to_string(shape));
  const TensorId y = builder.activation_tensor(name, {shape[0], shape[3]});
  builder.append({OpKind::kGlobalAvgPool, name, {x}, {y}, {}});
  return y;
}

namespace {

OpInputs global_avg_pool_gradient(GradientBuilder& builder,
                                  const Op& op,
                                  const OpOutputs& d_outputs) {
  return first_input_gradient(
      builder, op, OpKind::kGlobalAvgPoolBackward, {d_outputs[PoolOut::kY]});
}

int64_t backward_flops(const Graph& graph, const Op& op) {
  return graph.shape(op.outputs[PoolBackwardOut::kDX]).elements();
}

}  // namespace

const OpSchema kGlobalAvgPoolSchema = {global_avg_pool_gradient, elementwise_flops<1>, {}};
const OpSchema kGlobalAvgPoolBackwardSchema = {nullptr, backward_flops, {}};

}  // namespace lockstep::graph

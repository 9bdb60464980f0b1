// Pooling of images: windows and complete images.

#include <algorithm>
#include <vector>

#include "models/onnx/nodes/image_nodes.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

std::vector<int64_t> kernel_of(const NodeView& node) {
  const auto axes = static_cast<size_t>(node.rank(0) - 2);
  if (!node.node().has("kernel_shape")) node.refuse("has no attribute kernel_shape");
  return node.integers("kernel_shape", axes, 1, 1, kMaxWindow);
}

std::vector<Form> rule_pool(const NodeView& node) {
  require_image(node);
  const WindowAttributes window = window_of(node, kernel_of(node));
  const bool ceil = node.integer("ceil_mode", 0) != 0;
  const Extents& image = node.extents(0);
  Form to{node.type(0), {image[0], image[1]}};
  for (size_t i = 0; i + 2 < image.size(); ++i)
    to.extents.push_back(window_positions(node, window, i, image[2 + i], ceil));
  // MaxPool's second output: the indices of the maxima.
  return {to, {ElementType::kInt64, to.extents}};
}

std::vector<Form> rule_global_pool(const NodeView& node) {
  require_image(node);
  Form to = node.form(0);
  std::fill(to.extents.begin() + 2, to.extents.end(), 1);
  return {to};
}

constexpr int64_t kMaxPixels = 256;  // of a max pool's window, whose argmax is stored in a byte

graph::PoolAttributes pool_of(const Node& node, const AxisWindow& down, const AxisWindow& across) {
  for (const AxisWindow& axis : {down, across})
    if (!graph::windows_see_pixels(
            axis.from, axis.to, axis.kernel, axis.stride, axis.dilation, axis.before))
      refuse(node, "pads or ceil_mode: a window would cover only padding");
  graph::PoolAttributes attributes;
  attributes.kernel = {down.kernel, across.kernel};
  attributes.stride = {down.stride, across.stride};
  attributes.dilation = {down.dilation, across.dilation};
  attributes.padding = {down.before, across.before};
  attributes.behind = {down.after, across.after};
  // With ceil_mode, windows may extend beyond the padding.
  attributes.outputs = {down.to, across.to};
  attributes.count_include_pad = node.integer("count_include_pad", 0) != 0;
  if (node.op != "MaxPool" && attributes.dilation != graph::Extent2d{})
    refuse(node, "dilations: must be 1; average pooling with others is not supported");
  if (const int64_t pixels = down.kernel * across.kernel;
      node.op == "MaxPool" && pixels > kMaxPixels)
    refuse(node,
           "kernel_shape: has {} pixels; allowed: at most {}, or the complete image",
           pixels,
           kMaxPixels);
  return attributes;
}

TensorId append_pool(Lowering& lowering,
                     const Node& node,
                     TensorId x,
                     const AxisWindow& down,
                     const AxisWindow& across) {
  const auto pool = node.op == "MaxPool" ? ops::max_pool : ops::avg_pool;
  if (node.op == "MaxPool" && down.kernel * across.kernel > kMaxPixels && down.covers_axis() &&
      across.covers_axis()) {
    return ops::reduce(lowering.builder(),
                       lowering.name_of(node),
                       x,
                       graph::ReduceKind::kMax,
                       {1, 2},
                       /*keep=*/true);
  }
  return pool(lowering.builder(), lowering.name_of(node), x, pool_of(node, down, across));
}

// Pools height and width first, then the depth. For maxima that equals pooling the volume. So it
// does for means, because the share of a window's depths in the padding is the same for all its
// pixels.
TensorId append_pool_of_volumes(Lowering& lowering,
                                const Node& node,
                                TensorId x,
                                const Window& window) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const auto& [depth, height, width] = window;
  const Shape shape = builder.shape(x);
  if (!height.changes_nothing() || !width.changes_nothing()) {
    x = ops::reshape(
        builder, name + ".images", x, {shape[0] * depth.from, height.from, width.from, shape[4]});
    x = append_pool(lowering, node, x, height, width);
  }
  if (!depth.changes_nothing()) {
    const int64_t pixels = height.to * width.to;
    x = ops::reshape(builder, name + ".depths", x, {shape[0], depth.from, pixels, shape[4]});
    x = append_pool(lowering, node, x, depth, {.from = pixels, .to = pixels});
  }
  return ops::reshape(
      builder, name + ".volume", x, {shape[0], depth.to, height.to, width.to, shape[4]});
}

// Max and average pooling.
void lower_pool(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const Window window = window_of(lowering, node, node.integers("kernel_shape"));
  const TensorId x = images_of(lowering, node.input(0));
  set_images(lowering,
             node,
             lowering.value(node.input(0)).extents.size() == 5
                 ? append_pool_of_volumes(lowering, node, x, window)
                 : append_pool(lowering, node, x, window[1], window[2]));
}

// Pools over all axes but the first two.
void lower_global_pool(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const size_t rank = lowering.value(node.input(0)).extents.size();
  const TensorId x = lowering.layouts().channels_last(node.input(0));
  const std::vector<int> axes = numbers_from(rank - 2, 1);
  TensorId y = kNoTensor;
  if (node.op == "GlobalMaxPool")
    y = ops::reduce(builder, name, x, graph::ReduceKind::kMax, axes, false);
  else if (rank == 4)
    y = ops::global_avg_pool(builder, name, x);
  else
    y = ops::reduce(builder, name, x, graph::ReduceKind::kMean, axes, false);
  const Shape shape = shape_of(lowering.value(node.output(0)));
  set_output(lowering, node, ops::reshape(builder, name + ".extents", y, shape));
}

constexpr NodeType kNodes[] = {
    {"MaxPool", rule_pool, lower_pool},
    {"AveragePool", rule_pool, lower_pool},
    {"LpPool", rule_pool},
    {"GlobalAveragePool", rule_global_pool, lower_global_pool},
    {"GlobalMaxPool", rule_global_pool, lower_global_pool},
    {"GlobalLpPool", rule_global_pool},
};

}  // namespace

std::span<const NodeType> pooling_nodes() { return kNodes; }

}  // namespace lockstep::onnx

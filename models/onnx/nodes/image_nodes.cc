#include "models/onnx/nodes/image_nodes.h"
#include "models/onnx/nodes/operands.h"

#include <algorithm>

#include "models/onnx/read/constants.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
WindowAttributes window_of(const NodeView& node, std::vector<int64_t> kernel) {
  const size_t axes = kernel.size();
  WindowAttributes window;
  window.kernel = std::move(kernel);
  for (const int64_t extent : window.kernel)
    if (extent < 1 || extent > kMaxWindow)
      node.refuse("its kernel has extents {}; each must be within 1 and {}",
                  to_string(window.kernel),
                  kMaxWindow);
  window.strides = node.integers("strides", axes, 1, 1, kMaxWindow);
  window.dilations = node.integers("dilations", axes, 1, 1, kMaxWindow);
  window.pads = node.integers("pads", 2 * axes, 0, 0, kMaxWindow);
  window.auto_pad = node.node().text("auto_pad", "NOTSET");
  const std::string& pad = window.auto_pad;
  if (pad != "NOTSET" && pad != "SAME_UPPER" && pad != "SAME_LOWER" && pad != "VALID")
    node.refuse("attribute auto_pad is {}; must be NOTSET, SAME_UPPER, SAME_LOWER or VALID", pad);
  return window;
}

int64_t window_positions(
    const NodeView& node, const WindowAttributes& window, size_t axis, int64_t extent, bool ceil) {
  const int64_t stride = window.strides[axis];
  const int64_t reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1;
  if (window.auto_pad.starts_with("SAME")) return (extent + stride - 1) / stride;
  const bool padded = window.auto_pad == "NOTSET";
  const int64_t before = padded ? window.pads[axis] : 0;
  const int64_t after = padded ? window.pads[window.kernel.size() + axis] : 0;
  const int64_t length = extent + before + after - reach;
  if (length < 0)
    node.refuse("its window covers {} elements of axis {}, which has {} with its padding",
                reach,
                axis + 2,
                extent + before + after);
  const int64_t count = (length + (ceil ? stride - 1 : 0)) / stride + 1;
  // No window may start in the padding after the image.
  return ceil && (count - 1) * stride >= extent + before ? count - 1 : count;
}

void require_image(const NodeView& node) {
  node.require_rank(0, 3, 16);
  node.require_floating(0);
}

int64_t checked_groups(const NodeView& node, bool transposed) {
  node.require_inputs(2, 3);
  require_image(node);
  node.require_rank(1, node.rank(0), node.rank(0));
  node.require_same_type(0, 1);
  const Extents& image = node.extents(0);
  const Extents& weight = node.extents(1);
  const int64_t group = node.integer("group", 1, 1, kMaxWindow);
  if (image[1] != (transposed ? weight[0] : weight[1] * group) || weight[0] % group != 0)
    node.refuse("its {} channels, weight of extents {} and {} groups do not match",
                image[1],
                to_string(weight),
                group);
  return group;
}

void require_bias(const NodeView& node, int64_t channels) {
  if (!node.has(2) || node.extents(2) == Extents{channels} || filling_of(node.input(2)) == 0)
    return;
  node.refuse("its bias has extents {}; must be ({})", to_string(node.extents(2)), channels);
}

void require_images(Lowering& lowering, const Node& node, size_t max_axes) {
  const size_t rank = lowering.value(node.input(0)).extents.size();
  if (rank < 3 || rank > max_axes)
    refuse(node,
           "its input has {} axes; allowed: images (N, C, L){} (N, C, H, W){}",
           rank,
           max_axes == 5 ? "," : " and",
           max_axes == 5 ? " and (N, C, D, H, W)" : "");
}

Window window_of(Lowering& lowering, const Node& node, const std::vector<int64_t>& kernel) {
  const Extents &from = lowering.value(node.input(0)).extents,
                &to = lowering.value(node.output(0)).extents;
  const size_t axes = from.size() - 2;
  const WindowAttributes given = window_of(lowering.readers().view(node), kernel);
  Window window;
  for (size_t i = 0; i < axes; ++i) {
    AxisWindow& axis = window[3 - axes + i];  // of depth, height, width
    axis = {.kernel = kernel[i],
            .stride = given.strides[i],
            .dilation = given.dilations[i],
            .from = from[2 + i],
            .to = to[2 + i]};
    if (given.auto_pad == "NOTSET") {
      axis.before = given.pads[i];
      axis.after = given.pads[axes + i];
    } else if (given.auto_pad != "VALID") {
      const int64_t reach = (axis.to - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
      const int64_t missing = std::max<int64_t>(0, reach - axis.from);
      axis.before = given.auto_pad == "SAME_UPPER" ? missing / 2 : missing - missing / 2;
      axis.after = missing - axis.before;
    }
  }
  return window;
}

TensorId images_of(Lowering& lowering, int number) {
  const TensorId x = lowering.layouts().channels_last(number);
  graph::GraphBuilder& builder = lowering.builder();
  const Shape shape = builder.shape(x);
  if (shape.rank() != 3) return x;
  return ops::reshape(
      builder, lowering.value(number).name + ".image", x, {shape[0], 1, shape[1], shape[2]});
}

void set_images(Lowering& lowering, const Node& node, TensorId y) {
  graph::GraphBuilder& builder = lowering.builder();
  const Shape shape = builder.shape(y);
  if (lowering.value(node.output(0)).extents.size() == 3)
    y = ops::reshape(builder, lowering.name_of(node) + ".line", y, {shape[0], shape[2], shape[3]});
  set_output(lowering, node, y, /*channels_last=*/true);
}

namespace {

// A computed kernel (O, I, ...), in the layout of a parameter.
TensorId computed_kernel(Lowering& lowering, int number) {
  graph::GraphBuilder& builder = lowering.builder();
  const Value& value = lowering.value(number);
  const TensorId plain = lowering.layouts().plain(number);
  const std::string name = value.name + ".kernel";
  const auto rank = static_cast<int>(value.extents.size());
  std::vector<int> order = {0};  // the depth of a volume becomes adjacent to the channels
  for (int axis = rank == 5 ? 3 : 2; axis < rank; ++axis) order.push_back(axis);
  if (rank == 5) order.push_back(2);
  order.push_back(1);
  const TensorId kernel = ops::transpose(builder, name, plain, order);
  const Shape stored = stored_shape(value, Storage::kKernel);
  return shaped(builder, name + ".rows", kernel, stored);
}

}  // namespace

TensorId weight_of_images(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const ParameterSource source = lowering.readers().source_of(node.input(1));
  if (source.value >= 0 && lowering.parameters().can_have(source.value, Storage::kKernel)) {
    const TensorId weight = lowering.parameters().get(source.value, Storage::kKernel);
    builder.set_channels_last(weight, kernel_order(lowering.value(source.value)));
    return weight;
  }
  const Value& known = lowering.readers().origin(node.input(1));
  if (known.kind != ValueKind::kConstant) return computed_kernel(lowering, node.input(1));
  return builder.constant(known.name + ".kernel",
                          stored_shape(known, Storage::kKernel),
                          elements_of(known, Storage::kKernel));
}

TensorId bias_of_images(Lowering& lowering, const Node& node) {
  if (node.input(2) < 0) return kNoTensor;
  if (filling_of(lowering.readers().origin(node.input(2))) == 0) return kNoTensor;
  const ParameterSource source = lowering.readers().source_of(node.input(2));
  return source.value >= 0 && lowering.parameters().can_have(source.value, Storage::kAsInFile)
             ? lowering.parameters().get(source.value)
             : input_of(lowering, node, 2);
}

}  // namespace lockstep::onnx

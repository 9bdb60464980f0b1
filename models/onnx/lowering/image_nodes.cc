#include "models/onnx/lowering/image_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/onnx/constants.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {

void require_images(Lowering& lowering, const Node& node, size_t max_axes) {
  const size_t rank = lowering.value(node.input(0)).extents.size();
  if (rank < 3 || rank > max_axes)
    refuse(node,
           fmt::format("its input has {} axes; allowed: images (N, C, L){} (N, C, H, W){}",
                       rank,
                       max_axes == 5 ? "," : " and",
                       max_axes == 5 ? " and (N, C, D, H, W)" : ""));
}

std::array<int64_t, 3> by_axis(const Node& node,
                               const std::string& attribute,
                               size_t axes,
                               int64_t otherwise) {
  std::array<int64_t, 3> numbers = {otherwise, otherwise, otherwise};
  const std::vector<int64_t> given = node.integers(attribute);
  if (given.empty()) return numbers;
  if (given.size() != axes)
    refuse(node, fmt::format("{}: has {} numbers; must be {}", attribute, given.size(), axes));
  std::ranges::copy(given, numbers.end() - static_cast<std::ptrdiff_t>(axes));
  return numbers;
}

Window window_of(Lowering& lowering, const Node& node, const std::vector<int64_t>& kernel) {
  const Extents &from = lowering.value(node.input(0)).extents,
                &to = lowering.value(node.output(0)).extents;
  const size_t axes = from.size() - 2;
  const auto strides = by_axis(node, "strides", axes, 1),
             dilations = by_axis(node, "dilations", axes, 1);
  const std::string automatic = node.text("auto_pad", "NOTSET");
  std::vector<int64_t> pads = node.integers("pads");
  pads.resize(2 * axes, 0);
  Window window;
  for (size_t i = 0; i < axes; ++i) {
    const size_t dimension = 3 - axes + i;  // of depth, height, width
    AxisWindow& axis = window[dimension];
    axis = {.kernel = kernel[i],
            .stride = strides[dimension],
            .dilation = dilations[dimension],
            .from = from[2 + i],
            .to = to[2 + i]};
    if (automatic == "NOTSET") {
      axis.before = pads[i];
      axis.after = pads[axes + i];
    } else if (automatic != "VALID") {
      const int64_t reach = (axis.to - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
      const int64_t missing = std::max<int64_t>(0, reach - axis.from);
      axis.before = automatic == "SAME_UPPER" ? missing / 2 : missing - missing / 2;
      axis.after = missing - axis.before;
    }
  }
  return window;
}

TensorId images_of(Lowering& lowering, int number) {
  const TensorId x = lowering.channels_last(number);
  GraphBuilder& builder = lowering.builder();
  const Shape shape = builder.shape(x);
  if (shape.rank() != 3) return x;
  return ops::reshape(
      builder, lowering.value(number).name + ".image", x, {shape[0], 1, shape[1], shape[2]});
}

void set_images(Lowering& lowering, const Node& node, TensorId y) {
  GraphBuilder& builder = lowering.builder();
  const Shape shape = builder.shape(y);
  if (lowering.value(node.output(0)).extents.size() == 3)
    y = ops::reshape(builder, lowering.name_of(node) + ".line", y, {shape[0], shape[2], shape[3]});
  lowering.set(node.output(0), y, /*channels_last=*/true);
}

namespace {

// A computed kernel (O, I, ...), in the layout of a parameter.
TensorId computed_kernel(Lowering& lowering, int number) {
  GraphBuilder& builder = lowering.builder();
  const Value& value = lowering.value(number);
  const TensorId plain = lowering.plain(number);
  const std::string name = value.name + ".kernel";
  const auto rank = static_cast<int>(value.extents.size());
  std::vector<int> order = {0};  // the depth of a volume becomes adjacent to the channels
  for (int axis = rank == 5 ? 3 : 2; axis < rank; ++axis) order.push_back(axis);
  if (rank == 5) order.push_back(2);
  order.push_back(1);
  const TensorId kernel = ops::transpose(builder, name, plain, order);
  const Shape stored = stored_shape(value, Storage::kKernel);
  return builder.shape(kernel) == stored ? kernel
                                         : ops::reshape(builder, name + ".rows", kernel, stored);
}

}  // namespace

TensorId weight_of_images(Lowering& lowering, const Node& node) {
  GraphBuilder& builder = lowering.builder();
  const Lowering::Source source = lowering.source_of(node.input(1));
  if (source.value >= 0 && lowering.can_have(source.value, Storage::kKernel)) {
    const TensorId weight = lowering.parameter(source.value, Storage::kKernel);
    builder.set_channels_last(weight, kernel_order(lowering.value(source.value)));
    return weight;
  }
  const Value& known = lowering.value(lowering.origin_of(node.input(1)));
  if (known.kind != ValueKind::kConstant) return computed_kernel(lowering, node.input(1));
  return builder.constant(known.name + ".kernel",
                          stored_shape(known, Storage::kKernel),
                          elements_of(known, Storage::kKernel));
}

TensorId bias_of_images(Lowering& lowering, const Node& node) {
  if (node.input(2) < 0) return kNoTensor;
  if (filling_of(lowering.value(lowering.origin_of(node.input(2)))) == 0) return kNoTensor;
  const Lowering::Source source = lowering.source_of(node.input(2));
  return source.value >= 0 && lowering.can_have(source.value, Storage::kAsInFile)
             ? lowering.parameter(source.value)
             : lowering.plain(node.input(2));
}

}  // namespace lockstep::onnx

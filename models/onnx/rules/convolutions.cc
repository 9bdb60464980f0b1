// Ops that slide a window over an image: convolutions and pooling. Rules only, no evaluators.

#include <algorithm>
#include <string>

#include "models/onnx/constants.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

// Limit for attributes and kernels, so that products with an extent cannot overflow.
constexpr int64_t kMaxWindow = int64_t{1} << 15;

// A window over the spatial axes, from the node's attributes.
struct Window {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads;  // before each axis, then after each
  std::string auto_pad;
};

Window window_of(const NodeView& node, std::vector<int64_t> kernel) {
  const size_t axes = kernel.size();
  Window window;
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

std::vector<int64_t> kernel_of(const NodeView& node) {
  const auto axes = static_cast<size_t>(node.rank(0) - 2);
  if (!node.node().has("kernel_shape")) node.refuse("has no attribute kernel_shape");
  return node.integers("kernel_shape", axes, 1, 1, kMaxWindow);
}

// The number of positions of the window along an axis.
int64_t window_positions(
    const NodeView& node, const Window& window, size_t axis, int64_t extent, bool ceil) {
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

// Accepts zeros of other extents: PyTorch's exporter writes zeros (O, 2) if a convolution of three
// axes has no bias.
void require_bias(const NodeView& node, int64_t channels) {
  if (!node.has(2) || node.extents(2) == Extents{channels} || filling_of(node.input(2)) == 0)
    return;
  node.refuse("its bias has extents {}; must be ({})", to_string(node.extents(2)), channels);
}

// The weight is (outputs, inputs of a group, ...).
std::vector<Form> rule_conv(const NodeView& node) {
  node.require_inputs(2, 3);
  require_image(node);
  node.require_rank(1, node.rank(0), node.rank(0));
  node.require_same_type(0, 1);
  const Extents& image = node.extents(0);
  const Extents& weight = node.extents(1);
  const int64_t group = node.integer("group", 1, 1, kMaxWindow);
  if (image[1] != weight[1] * group || weight[0] % group != 0)
    node.refuse("its {} channels, weight of extents {} and {} groups do not match",
                image[1],
                to_string(weight),
                group);
  require_bias(node, weight[0]);
  const std::vector<int64_t> kernel(weight.begin() + 2, weight.end());
  if (node.node().has("kernel_shape") && node.node().integers("kernel_shape") != kernel)
    node.refuse("attribute kernel_shape is {}; its weight has {}",
                to_string(node.node().integers("kernel_shape")),
                to_string(kernel));
  const Window window = window_of(node, kernel);
  Form to{node.type(0), {image[0], weight[0]}};
  for (size_t i = 0; i < kernel.size(); ++i)
    to.extents.push_back(window_positions(node, window, i, image[2 + i], false));
  return {to};
}

// The weight is (inputs, outputs of a group, ...).
std::vector<Form> rule_conv_transpose(const NodeView& node) {
  node.require_inputs(2, 3);
  require_image(node);
  node.require_rank(1, node.rank(0), node.rank(0));
  node.require_same_type(0, 1);
  const Extents& image = node.extents(0);
  const Extents& weight = node.extents(1);
  const int64_t group = node.integer("group", 1, 1, kMaxWindow);
  if (image[1] != weight[0] || weight[0] % group != 0)
    node.refuse("its {} channels, weight of extents {} and {} groups do not match",
                image[1],
                to_string(weight),
                group);
  const int64_t channels = weight[1] * group;
  require_bias(node, channels);
  const size_t axes = weight.size() - 2;
  const Window window = window_of(node, {weight.begin() + 2, weight.end()});
  const std::vector<int64_t> more = node.integers("output_padding", axes, 0, 0, kMaxWindow);
  Form to{node.type(0), {image[0], channels}};
  for (size_t i = 0; i < axes; ++i) {
    const int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    int64_t extent = window.strides[i] * (image[2 + i] - 1) + more[i] + reach;
    if (window.auto_pad == "NOTSET") extent -= window.pads[i] + window.pads[axes + i];
    if (window.auto_pad.starts_with("SAME")) extent = window.strides[i] * image[2 + i];
    to.extents.push_back(extent);
  }
  if (node.node().has("output_shape")) {
    const std::vector<int64_t> shape = node.integers("output_shape", axes, 0, 1);
    std::copy(shape.begin(), shape.end(), to.extents.begin() + 2);
  }
  return {to};
}

std::vector<Form> rule_pool(const NodeView& node) {
  require_image(node);
  const Window window = window_of(node, kernel_of(node));
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

constexpr Op kOps[] = {
    {"Conv", rule_conv},
    {"ConvTranspose", rule_conv_transpose},
    {"MaxPool", rule_pool},
    {"AveragePool", rule_pool},
    {"LpPool", rule_pool},
    {"GlobalAveragePool", rule_global_pool},
    {"GlobalMaxPool", rule_global_pool},
    {"GlobalLpPool", rule_global_pool},
};

}  // namespace

std::span<const Op> convolution_ops() { return kOps; }

}  // namespace lockstep::onnx

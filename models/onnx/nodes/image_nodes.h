#pragma once
// Helpers for nodes on images (N, C, L), (N, C, H, W) or (N, C, D, H, W). Native ops take
// (N, H, W, C): L becomes the width, and the functions here fold the depth into other axes.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// Limit for attributes and kernels, so that products with an extent cannot overflow.
constexpr int64_t kMaxWindow = int64_t{1} << 15;

// A window over the spatial axes, as the node's attributes describe it.
struct WindowAttributes {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads;  // before each axis, then after each
  std::string auto_pad;
};
WindowAttributes window_of(const NodeView& node, std::vector<int64_t> kernel);
// The number of positions of the window along an axis.
int64_t window_positions(
    const NodeView& node, const WindowAttributes& window, size_t axis, int64_t extent, bool ceil);

// Throws ConfigError unless the first input has floating-point images.
void require_image(const NodeView& node);
// Checks a convolution's image and weight, (outputs, inputs of a group, ...) or, if it is
// transposed, (inputs, outputs of a group, ...). Returns the number of groups.
int64_t checked_groups(const NodeView& node, bool transposed);
// Checks the bias. Accepts zeros of other extents: PyTorch's exporter writes zeros (O, 2) if a
// convolution of three axes has no bias.
void require_bias(const NodeView& node, int64_t channels);

// A window along one axis of an image. The default window changes nothing.
struct AxisWindow {
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t before = 0, after = 0;  // of padding
  int64_t from = 1, to = 1;       // extents of the input and of the output

  bool changes_nothing() const { return kernel == 1 && stride == 1 && before == 0 && after == 0; }
  // Whether there is a single window, which covers all pixels and no padding.
  bool covers_axis() const { return to == 1 && kernel == from && before == 0 && after == 0; }
};
// The windows along depth, height and width.
using Window = std::array<AxisWindow, 3>;

// Throws ConfigError unless the first input has 3 to `max_axes` axes.
void require_images(Lowering& lowering, const Node& node, size_t max_axes = 5);

// The window of a node's attributes, for a kernel of these extents. The padding of auto_pad is
// computed from the extents of the output.
Window window_of(Lowering& lowering, const Node& node, const std::vector<int64_t>& kernel);

// A value as (N, H, W, C), with height 1 if it has one spatial axis. Volumes are (N, D, H, W, C).
TensorId images_of(Lowering& lowering, int number);
// Sets the node's output to y, which has the layout of images_of().
void set_images(Lowering& lowering, const Node& node, TensorId y);

// The second input, a kernel (O, I, ...), in the layout of Storage::kKernel.
TensorId weight_of_images(Lowering& lowering, const Node& node);

// The third input, the bias. kNoTensor if it is absent or zeros: exporters write zeros for layers
// without a bias.
TensorId bias_of_images(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

#pragma once
// Helpers for nodes on images (N, C, L), (N, C, H, W) or (N, C, D, H, W). Native ops take
// (N, H, W, C): L becomes the width, and the functions here fold the depth into other axes.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

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

// An attribute with a number for each spatial axis, as numbers for depth, height and width.
// `otherwise` stands for a missing attribute and for axes that the image does not have.
std::array<int64_t, 3> by_axis(const Node& node,
                               const std::string& attribute,
                               size_t axes,
                               int64_t otherwise);

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

#pragma once
// What nodes that work on images have in common: (N, C, L), (N, C, H, W) or (N, C, D, H, W). Ops take
// (N, H, W, C), so that L is a width, and the depth is for the functions here to deal with.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

// A window along an axis of an image. As it is here it changes nothing.
struct AxisWindow {
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t before = 0, after = 0;  // of padding
  int64_t from = 1, to = 1;       // extents of the image and of what comes of it

  bool changes_nothing() const { return kernel == 1 && stride == 1 && before == 0 && after == 0; }
  // One window, which sees all pixels and no padding.
  bool is_whole() const { return to == 1 && kernel == from && before == 0 && after == 0; }
};
// Of depth, height and width.
using Window = std::array<AxisWindow, 3>;

// Refuses a node whose first input has fewer or more axes.
void require_images(Lowering& lowering, const Node& node, size_t most_axes = 5);

// An attribute with one number for each axis of depth, height and width; `otherwise` where there is none,
// and of axes that the image does not have.
std::array<int64_t, 3> by_axis(const Node& node,
                               const std::string& attribute,
                               size_t axes,
                               int64_t otherwise);

// As the attributes say, for a kernel of these extents. What auto_pad adds follows from the extents of
// the output.
Window window_of(Lowering& lowering, const Node& node, const std::vector<int64_t>& kernel);

// A value as (N, H, W, C), of one axis with a height of 1; of three as (N, D, H, W, C).
TensorId images_of(Lowering& lowering, int number);
// Says that the output of a node is y, as images_of() would give it.
void set_images(Lowering& lowering, const Node& node, TensorId y);

// The second input (O, I, ...), a parameter of the file, as Storage::kKernel has it.
TensorId weight_of_images(Lowering& lowering, const Node& node);

// The third input, a parameter of the file; kNoTensor where there is none, or zeros, as exporters write
// where a layer has no bias.
TensorId bias_of_images(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

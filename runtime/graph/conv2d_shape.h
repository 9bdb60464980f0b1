#pragma once
// The extents of a convolution, as the kernels of all backends take them.

#include <compare>
#include <cstdint>

#include "runtime/graph/window.h"

namespace lockstep {
class Shape;
}  // namespace lockstep

namespace lockstep::graph {

struct Conv2dAttributes;

// N images of H x W pixels with I channels become images with O channels. A kernel of KH x KW taps
// moves over the image, which is padded on all sides. With G groups, the outputs of group g read
// only the channels of group g.
struct Conv2dShape {
  int64_t batch, height, width, channels;  // N, H, W, I
  int64_t outputs, kernel_h, kernel_w;     // O, KH, KW
  int64_t stride_h = 1, stride_w = 1;      // >= 1
  int64_t pad_h = 0, pad_w = 0;            // rows above and below, columns left and right; >= 0
  int64_t dilation_h = 1, dilation_w = 1;  // distance between neighbouring taps; >= 1
  int64_t groups = 1;                      // divides I and O

  // OH and OW; 0 if the kernel is larger than the padded image.
  int64_t out_height() const { return window_count(height, kernel_h, stride_h, pad_h, dilation_h); }
  int64_t out_width() const { return window_count(width, kernel_w, stride_w, pad_w, dilation_w); }
  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t pixels() const { return batch * height * width; }
  int64_t out_pixels() const { return batch * out_height() * out_width(); }
  // Products of one output, which is also the number of elements of one output's weights.
  int64_t patch() const { return kernel_h * kernel_w * group_channels(); }
  int64_t multiply_adds() const { return out_pixels() * outputs * patch(); }
  // Whether each output reads one pixel and each pixel is read by one output: a linear layer on
  // pixels.
  bool is_linear() const {
    return kernel_h == 1 && kernel_w == 1 && stride_h == 1 && stride_w == 1 && pad_h == 0 &&
           pad_w == 0 && groups == 1;
  }
  auto operator<=>(const Conv2dShape&) const = default;
};

// For x (N, H, W, I) and weights (O, KH, KW, I / G); defined in ops/conv2d.cc.
Conv2dShape conv2d_shape(const Shape& x, const Shape& weight, const Conv2dAttributes& attributes);

}  // namespace lockstep::graph

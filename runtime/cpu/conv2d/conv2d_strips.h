#pragma once
// Images of few channels, such as the first layer's, would leave each tap of a kernel a depth of
// three. But the columns of the kernel and the channels are neighbours in memory, in the image and
// in the weights: they are one depth, or rows of one matrix, once the image has its padding. So a
// strip of each image, some rows of the result, is copied with its padding.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

// Whether a convolution is computed by strips.
inline bool uses_strips(const Conv2dShape& s) {
  return s.groups == 1 && s.channels < 16 && s.kernel_w > 1 && s.dilation_w == 1;
}

// Images cut into strips.
struct Strips {
  explicit Strips(const Conv2dShape& s)
      : shape(s),
        rows(std::clamp<int64_t>(kPixels / std::max<int64_t>(1, s.out_width()),
                                 1,
                                 std::max<int64_t>(1, s.out_height()))),
        in_image(ceil_div(s.out_height(), rows)) {}

  int64_t count() const { return shape.batch * in_image; }
  // Floats in a row of a strip.
  int64_t stride() const { return (shape.width + 2 * shape.pad_w) * shape.channels; }
  int64_t source_rows() const {
    return (rows - 1) * shape.stride_h + shape.dilation_h * (shape.kernel_h - 1) + 1;
  }
  int64_t floats() const { return round_up(source_rows() * stride(), 16); }
  // Taps of a row of the kernel x channels.
  int64_t depth() const { return shape.kernel_w * shape.channels; }

  int64_t image(int64_t index) const { return index / in_image; }
  // Rows of the result, within its image.
  Range result_rows(int64_t index) const {
    const int64_t first = index % in_image * rows;
    return {first, std::min(first + rows, shape.out_height())};
  }

  // Copies what strip `index` sees of x.
  void copy(const float* x, int64_t index, float* to) const {
    const int64_t margin = shape.pad_w * shape.channels, width = shape.width * shape.channels;
    const int64_t first = result_rows(index).begin * shape.stride_h - shape.pad_h;
    for (int64_t i = 0; i < source_rows(); ++i, to += stride()) {
      const int64_t h = first + i;
      if (h < 0 || h >= shape.height) {
        std::memset(to, 0, stride() * sizeof(float));
        continue;
      }
      std::memset(to, 0, margin * sizeof(float));
      std::memcpy(
          to + margin, x + (image(index) * shape.height + h) * width, width * sizeof(float));
      std::memset(to + margin + width, 0, margin * sizeof(float));
    }
  }

  static constexpr int64_t kPixels = 1152;  // of the result

  Conv2dShape shape;
  int64_t rows;      // of the result, in all strips but an image's last
  int64_t in_image;  // strips
};

}  // namespace lockstep::cpu

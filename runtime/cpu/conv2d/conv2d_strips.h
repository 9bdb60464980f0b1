#pragma once
// Convolution by strips, for images with few channels, such as a network's input. Taken one by one,
// the taps of a kernel would have a depth of only three channels. But within a kernel row, columns
// x channels are contiguous in the weights, and also in the image if it has its padding. So a strip
// of each image (some rows of the result) is copied with its padding, in floats, and a kernel row
// becomes one tap whose depth is columns x channels.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

// Whether a convolution is computed by strips.
inline bool uses_strips(const graph::Conv2dShape& s) {
  return s.groups == 1 && s.channels < 16 && s.kernel_w > 1 && s.dilation_w == 1;
}

// The division of the images into strips.
struct Strips {
  explicit Strips(const graph::Conv2dShape& s)
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
  // Columns of the kernel x channels.
  int64_t depth() const { return shape.kernel_w * shape.channels; }

  int64_t image(int64_t index) const { return index / in_image; }
  // Rows of the result, within its image.
  Range result_rows(int64_t index) const {
    const int64_t first = index % in_image * rows;
    return {first, std::min(first + rows, shape.out_height())};
  }

  // Copies the part of x that strip `index` reads, by copy_row(from, numbers, to).
  template <typename T, typename CopyRow>
  void copy(const T* x, int64_t index, float* to, const CopyRow& copy_row) const {
    const int64_t margin = shape.pad_w * shape.channels, width = shape.width * shape.channels;
    const int64_t first = result_rows(index).begin * shape.stride_h - shape.pad_h;
    for (int64_t i = 0; i < source_rows(); ++i, to += stride()) {
      const int64_t h = first + i;
      if (h < 0 || h >= shape.height) {
        std::memset(to, 0, stride() * sizeof(float));
        continue;
      }
      std::memset(to, 0, margin * sizeof(float));
      copy_row(x + (image(index) * shape.height + h) * width, width, to + margin);
      std::memset(to + margin + width, 0, margin * sizeof(float));
    }
  }

  static constexpr int64_t kPixels = 1152;  // of a strip's result

  graph::Conv2dShape shape;
  int64_t rows;      // of the result, in every strip except an image's last
  int64_t in_image;  // strips of an image
};

}  // namespace lockstep::cpu

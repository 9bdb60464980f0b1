#pragma once
// Shapes that the tests of convolutions share.

#include <string>
#include <vector>

#include "runtime/graph/conv2d_shape.h"

namespace lockstep::test {

inline graph::Conv2dShape shape(int64_t batch,
                                int64_t height,
                                int64_t width,
                                int64_t channels,
                                int64_t outputs,
                                int64_t kernel_h,
                                int64_t kernel_w,
                                int64_t stride_h = 1,
                                int64_t stride_w = 1,
                                int64_t pad_h = 0,
                                int64_t pad_w = 0,
                                int64_t dilation_h = 1,
                                int64_t dilation_w = 1,
                                int64_t groups = 1) {
  return {batch,
          height,
          width,
          channels,
          outputs,
          kernel_h,
          kernel_w,
          stride_h,
          stride_w,
          pad_h,
          pad_w,
          dilation_h,
          dilation_w,
          groups};
}

// Squares: kernel, stride, padding, dilation.
inline graph::Conv2dShape square(int64_t batch,
                                 int64_t extent,
                                 int64_t channels,
                                 int64_t outputs,
                                 int64_t kernel,
                                 int64_t stride = 1,
                                 int64_t pad = 0,
                                 int64_t dilation = 1,
                                 int64_t groups = 1) {
  return shape(batch,
               extent,
               extent,
               channels,
               outputs,
               kernel,
               kernel,
               stride,
               stride,
               pad,
               pad,
               dilation,
               dilation,
               groups);
}

// Few and many channels, each kind of kernel, strides with and without pixels that no output sees,
// and sizes around the blocks: a panel (32 outputs), a tile (12 pixels), a depth block (768), a
// block of pixels (768 and more), a strip (1152), Winograd's blocks (48 to 96 tiles, by the
// outputs; 36 and 144 channels).
inline const std::vector<graph::Conv2dShape>& conv2d_shapes() {
  static const std::vector<graph::Conv2dShape> all = {
      square(1, 1, 1, 1, 1),
      square(2, 5, 3, 7, 1),
      square(3, 7, 33, 64, 1),
      square(2, 9, 64, 33, 1, 2),
      square(1, 8, 16, 5, 1, 3, 1),
      shape(2, 9, 7, 20, 35, 1, 1, 2, 3),
      square(3, 12, 40, 70, 1, 2),
      square(2, 8, 3, 33, 3, 1, 1),
      square(1, 37, 3, 16, 3, 1, 1),
      square(2, 9, 1, 5, 3, 2, 1),
      square(2, 7, 5, 16, 3, 3),
      square(3, 6, 16, 16, 3, 1, 1),
      square(2, 10, 33, 35, 3, 1, 1),
      square(1, 9, 64, 64, 3, 2, 1),
      square(1, 10, 64, 40, 3, 2, 1),
      square(1, 11, 16, 33, 3, 3, 1),
      square(1, 11, 17, 20, 3, 1, 2, 2),
      square(1, 13, 3, 9, 3, 1, 2, 2),
      square(1, 12, 16, 16, 3, 2, 3, 2),
      square(1, 13, 20, 8, 3, 3, 3, 2),
      square(2, 4, 100, 70, 3, 1, 1),
      square(1, 4, 800, 34, 3, 1, 1),
      square(1, 4, 36, 800, 3, 1, 1),
      square(1, 30, 16, 40, 3, 1, 1),
      square(2, 7, 37, 47, 3, 1, 1),
      square(1, 5, 64, 64, 3, 1, 0),
      square(2, 5, 65, 32, 3, 1, 2),
      square(1, 3, 33, 32, 3, 1, 4),
      square(1, 3, 32, 33, 3, 1, 0),
      shape(1, 4, 11, 33, 33, 3, 3, 1, 1, 2, 0),
      shape(2, 17, 24, 34, 40, 3, 3, 1, 1, 1, 1),
      square(5, 5, 150, 40, 3, 1, 1),
      square(1, 12, 40, 150, 3, 1, 1),
      square(1, 14, 32, 256, 3, 1, 1),
      square(2, 13, 33, 160, 3, 1, 1),
      square(3, 29, 4, 6, 3, 2, 1),
      square(1, 41, 20, 33, 5, 1, 2),
      square(1, 9, 16, 33, 5, 1, 2),
      square(1, 9, 5, 17, 5, 2, 2),
      square(1, 23, 3, 64, 7, 2, 3),
      square(1, 8, 17, 18, 7, 1, 3),
      square(1, 35, 3, 20, 11, 4, 2),
      square(1, 12, 16, 3, 11, 1, 5),
      shape(2, 6, 9, 16, 12, 1, 5, 1, 1, 0, 2),
      shape(1, 7, 5, 3, 12, 1, 3, 1, 2, 0, 1),
      shape(1, 9, 6, 33, 12, 4, 1, 2, 1, 1, 0),
      shape(1, 9, 14, 16, 12, 3, 2, 2, 3, 1, 0, 1, 2),
      shape(1, 9, 14, 3, 12, 3, 2, 2, 3, 1, 0, 2, 1),
      square(2, 7, 6, 9, 3, 1, 1, 1, 3),
      square(1, 7, 66, 34, 3, 2, 1, 1, 2),
      square(1, 5, 4, 12, 3, 1, 1, 1, 4),
      square(2, 7, 5, 5, 3, 1, 1, 1, 5),
      square(1, 9, 33, 33, 3, 2, 1, 1, 33),
      square(1, 6, 64, 64, 3, 1, 2, 2, 64),
      square(1, 9, 70, 70, 5, 3, 2, 1, 70),
      square(1, 2, 16, 5, 3, 1, 0),   // no outputs
      square(1, 2, 32, 32, 3, 1, 0),  // nor here
      square(1, 3, 5, 4, 1, 1, 2),    // some outputs see padding alone
  };
  return all;
}

// Those that have products of bf16x3.h. Channels around the tiles (16, 32), depths around the
// blocks (16 and 48 chunks), rows around the pairs of row tiles (32) and the blocks of rows,
// columns around a panel (32) and what is kept of them (1024).
inline const std::vector<graph::Conv2dShape>& bf16x3_conv2d_shapes() {
  static const std::vector<graph::Conv2dShape> all = {
      square(1, 1, 32, 32, 1),
      square(3, 7, 64, 33, 1),
      square(2, 9, 48, 40, 1, 2),
      square(1, 8, 64, 64, 1, 3, 1),
      shape(2, 9, 7, 80, 35, 1, 1, 2, 3),
      square(1, 9, 32, 96, 3, 1, 1),
      square(2, 10, 48, 64, 3, 2, 1),
      square(1, 11, 112, 70, 3, 3, 1),
      square(1, 11, 32, 36, 3, 1, 2, 2),
      square(1, 12, 32, 48, 3, 2, 3, 2),
      square(2, 4, 528, 34, 3, 1, 1),
      square(1, 4, 32, 600, 3, 1, 1),
      square(1, 24, 128, 40, 3, 1, 1),
      square(1, 3, 32, 80, 3, 1, 4),
      shape(2, 17, 24, 32, 70, 3, 3, 1, 1, 1, 1),
      shape(1, 6, 9, 32, 32, 1, 5, 1, 1, 0, 2),
      shape(1, 9, 6, 32, 33, 4, 1, 2, 1, 1, 0),
      shape(1, 9, 14, 48, 32, 3, 2, 2, 3, 1, 0, 1, 2),
      square(1, 9, 64, 33, 5, 2, 2),
      square(2, 7, 96, 96, 3, 1, 1, 1, 2),
      square(1, 40, 32, 32, 1),
      square(1, 2, 32, 65, 3, 1, 0),  // no outputs
      square(1, 3, 48, 32, 1, 1, 2),  // some outputs see padding alone
  };
  return all;
}

inline std::string describe(const graph::Conv2dShape& s) {
  const auto pair = [](int64_t h, int64_t w) {
    return std::to_string(h) + "x" + std::to_string(w);
  };
  return std::to_string(s.batch) + " of " + pair(s.height, s.width) + "x" +
         std::to_string(s.channels) + " -> " + std::to_string(s.outputs) + " kernel " +
         pair(s.kernel_h, s.kernel_w) + " stride " + pair(s.stride_h, s.stride_w) + " pad " +
         pair(s.pad_h, s.pad_w) + " dilation " + pair(s.dilation_h, s.dilation_w) + " groups " +
         std::to_string(s.groups);
}

}  // namespace lockstep::test

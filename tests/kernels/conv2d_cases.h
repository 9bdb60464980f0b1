#pragma once
// What the tests of convolutions share: shapes, inputs, calls.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/cpu/conv2d/conv2d.h"
#include "tests/reference/conv2d.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {

using test::Guarded;
using test::kEps;

inline Conv2dShape shape(int64_t batch,
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
inline Conv2dShape square(int64_t batch,
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
inline const std::vector<Conv2dShape>& shapes() {
  static const std::vector<Conv2dShape> all = {
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

inline std::string describe(const Conv2dShape& s) {
  const auto pair = [](int64_t h, int64_t w) {
    return std::to_string(h) + "x" + std::to_string(w);
  };
  return std::to_string(s.batch) + " of " + pair(s.height, s.width) + "x" +
         std::to_string(s.channels) + " -> " + std::to_string(s.outputs) + " kernel " +
         pair(s.kernel_h, s.kernel_w) + " stride " + pair(s.stride_h, s.stride_w) + " pad " +
         pair(s.pad_h, s.pad_w) + " dilation " + pair(s.dilation_h, s.dilation_w) + " groups " +
         std::to_string(s.groups);
}

struct Inputs {
  explicit Inputs(const Conv2dShape& s)
      : x(s.batch * s.height * s.width * s.channels, 1),
        w(s.outputs * s.kernel_h * s.kernel_w * s.group_channels(), 2),
        bias(s.outputs, 3),
        d_y(s.out_pixels() * s.outputs, 1) {
    test::fill_uniform(x, -1, 1, 11);
    test::fill_uniform(w, -1, 1, 12);
    test::fill_uniform(bias, -1, 1, 13);
    test::fill_uniform(d_y, -1, 1, 14);
  }
  Guarded<float> x, w, bias, d_y;
};

inline std::vector<float> forward(const Conv2dShape& s, Inputs& in, const Epilogue& epilogue) {
  Guarded<float> y(in.d_y.size(), 3);
  std::fill(y.begin(), y.end(), NAN);
  Guarded<unsigned char> workspace(conv2d_forward_workspace_bytes(s, compute_threads()));
  conv2d_forward(
      {.shape = s, .x = in.x.data(), .w = in.w.data(), .epilogue = epilogue, .y = y.data()},
      workspace.data());
  return y.copy();
}

inline std::vector<float> forward(const Conv2dShape& s,
                                  Inputs& in,
                                  bool with_bias,
                                  Activation activation) {
  return forward(s, in, {.bias = with_bias ? in.bias.data() : nullptr, .activation = activation});
}

inline test::Conv2dReference reference(const Conv2dShape& s,
                                       const Inputs& in,
                                       bool with_bias,
                                       Activation activation) {
  test::Conv2dReference result{
      .shape = s,
      .activation = activation,
      .x = test::to_double(in.x),
      .w = test::to_double(in.w),
      .bias = with_bias ? test::to_double(in.bias) : std::vector<double>()};
  result.forward();
  return result;
}

}  // namespace lockstep::cpu

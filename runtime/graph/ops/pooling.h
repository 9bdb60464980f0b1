#pragma once
// max_pool: y = the largest pixel of each window, by channel; the first one if several are equal.
// NaN counts as the largest.
// In training it also writes `place`: the index of its tap in the window, row by row.
// max_pool_backward: d_x = sum of d_y over the windows whose largest pixel this one is.
// avg_pool: y = the mean of each window, by channel. At the border it is divided by the kernel's
// area including padding (count_include_pad), or by the number of pixels of the image.
// With PoolAttributes::adaptive and O windows along S pixels, window i covers the pixels from
// floor(i S / O) to below ceil((i + 1) S / O), as in PyTorch's AdaptiveAvgPool2d. Windows may
// overlap, and they repeat pixels if O > S.
// global_avg_pool: y = the mean over all pixels, by image and channel.
// global_avg_pool_backward: d_x = d_y / (H W).

#include <cstdint>
#include <string>

#include "runtime/graph/extent2d.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

// Of all kinds; only max_pool has places.
enum class PoolIn : InputIndex { kX };
enum class PoolOut : OutputIndex { kY, kPlace };
enum class PoolBackwardIn : InputIndex { kDY, kPlace };
enum class PoolBackwardOut : OutputIndex { kDX };

struct PoolAttributes {
  Extent2d kernel, stride;
  Extent2d padding{0, 0};         // above and on the left; less than the kernel
  bool count_include_pad = true;  // avg_pool: padding counts in the divisor
  bool adaptive = false;          // avg_pool: windows as above; kernel, stride: about their size
  Extent2d behind{-1, -1};  // padding below and on the right; below 0: as above and on the left
  // Number of windows, of which the last ones may reach beyond the padding; 0: as many as fit.
  Extent2d outputs{0, 0};
  Extent2d dilation{1, 1};  // max_pool: distance between taps

  Extent2d padding_behind() const {
    return {behind.height < 0 ? padding.height : behind.height,
            behind.width < 0 ? padding.width : behind.width};
  }
};

// Whether each window along an axis covers a pixel of the image.
bool windows_see_pixels(int64_t pixels,
                        int64_t windows,
                        int64_t kernel,
                        int64_t stride,
                        int64_t dilation,
                        int64_t padding);

namespace ops {

// (N, H, W, C) -> (N, OH, OW, C).
TensorId max_pool(GraphBuilder& builder,
                  const std::string& name,
                  TensorId x,
                  const PoolAttributes& attributes);
TensorId avg_pool(GraphBuilder& builder,
                  const std::string& name,
                  TensorId x,
                  const PoolAttributes& attributes);
// (N, H, W, C) -> (N, outputs.height, outputs.width, C).
TensorId adaptive_avg_pool(GraphBuilder& builder,
                           const std::string& name,
                           TensorId x,
                           Extent2d outputs);
// (N, H, W, C) -> (N, C).
TensorId global_avg_pool(GraphBuilder& builder, const std::string& name, TensorId x);

}  // namespace ops

struct PoolShape {
  int64_t images, height, width, channels;  // of x
  int64_t out_height, out_width;            // of y
  PoolAttributes window;

  PoolShape(const Shape& x, const Shape& y, const PoolAttributes& window)
      : images(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        out_height(y[1]),
        out_width(y[2]),
        window(window) {}
};

// For max_pool and avg_pool.
template <typename T>
struct PoolForward {
  const OpCall& call = OpCall::none();
  PoolShape shape = {call.input_shape(PoolIn::kX),
                     call.output_shape(PoolOut::kY),
                     call.attributes<PoolAttributes>()};
  const T* x = call.input<T>(PoolIn::kX);  // (N, H, W, C)
  T* y = call.output<T>(PoolOut::kY);      // (N, OH, OW, C)
  // (N, OH, OW, C) index of the largest tap, or null
  uint8_t* place = call.output<uint8_t>(PoolOut::kPlace);
};

template <typename T>
struct PoolBackward {
  const OpCall& call = OpCall::none();
  PoolShape shape = {call.output_shape(PoolBackwardOut::kDX),
                     call.input_shape(PoolBackwardIn::kDY),
                     call.attributes<PoolAttributes>()};
  const T* d_y = call.input<T>(PoolBackwardIn::kDY);  // (N, OH, OW, C)
  // (N, OH, OW, C) from max_pool
  const uint8_t* place = call.input<uint8_t>(PoolBackwardIn::kPlace);
  T* d_x = call.output<T>(PoolBackwardOut::kDX);  // (N, H, W, C)
};

template <typename T>
struct GlobalAvgPoolForward {
  const OpCall& call = OpCall::none();
  int64_t images = call.input_shape(PoolIn::kX)[0];
  int64_t pixels = call.input_shape(PoolIn::kX)[1] * call.input_shape(PoolIn::kX)[2];
  int64_t channels = call.input_shape(PoolIn::kX)[3];
  const T* x = call.input<T>(PoolIn::kX);  // (images, pixels, channels)
  T* y = call.output<T>(PoolOut::kY);      // (images, channels)
};

template <typename T>
struct GlobalAvgPoolBackward {
  const OpCall& call = OpCall::none();
  int64_t images = call.output_shape(PoolBackwardOut::kDX)[0];
  int64_t pixels =
      call.output_shape(PoolBackwardOut::kDX)[1] * call.output_shape(PoolBackwardOut::kDX)[2];
  int64_t channels = call.output_shape(PoolBackwardOut::kDX)[3];
  const T* d_y = call.input<T>(PoolBackwardIn::kDY);  // (images, channels)
  T* d_x = call.output<T>(PoolBackwardOut::kDX);      // (images, pixels, channels)
};

}  // namespace lockstep::graph

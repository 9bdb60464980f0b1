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

class GraphBuilder;

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
  PoolShape shape;
  const T* x;      // (N, H, W, C)
  T* y;            // (N, OH, OW, C)
  uint8_t* place;  // (N, OH, OW, C) index of the largest tap, or null

  static PoolForward of(const OpCall& op) {
    return {.shape = {op.input_shape(PoolIn::kX),
                      op.output_shape(PoolOut::kY),
                      op.attributes<PoolAttributes>()},
            .x = op.input<T>(PoolIn::kX),
            .y = op.output<T>(PoolOut::kY),
            .place = op.output<uint8_t>(PoolOut::kPlace)};
  }
};

template <typename T>
struct PoolBackward {
  PoolShape shape;
  const T* d_y;          // (N, OH, OW, C)
  const uint8_t* place;  // (N, OH, OW, C) from max_pool
  T* d_x;                // (N, H, W, C)

  static PoolBackward of(const OpCall& op) {
    return {.shape = {op.output_shape(PoolBackwardOut::kDX),
                      op.input_shape(PoolBackwardIn::kDY),
                      op.attributes<PoolAttributes>()},
            .d_y = op.input<T>(PoolBackwardIn::kDY),
            .place = op.input<uint8_t>(PoolBackwardIn::kPlace),
            .d_x = op.output<T>(PoolBackwardOut::kDX)};
  }
};

template <typename T>
struct GlobalAvgPoolForward {
  int64_t images, pixels, channels;
  const T* x;  // (images, pixels, channels)
  T* y;        // (images, channels)

  static GlobalAvgPoolForward of(const OpCall& op) {
    const Shape& x = op.input_shape(PoolIn::kX);
    return {.images = x[0],
            .pixels = x[1] * x[2],
            .channels = x[3],
            .x = op.input<T>(PoolIn::kX),
            .y = op.output<T>(PoolOut::kY)};
  }
};

template <typename T>
struct GlobalAvgPoolBackward {
  int64_t images, pixels, channels;
  const T* d_y;  // (images, channels)
  T* d_x;        // (images, pixels, channels)

  static GlobalAvgPoolBackward of(const OpCall& op) {
    const Shape& x = op.output_shape(PoolBackwardOut::kDX);
    return {.images = x[0],
            .pixels = x[1] * x[2],
            .channels = x[3],
            .d_y = op.input<T>(PoolBackwardIn::kDY),
            .d_x = op.output<T>(PoolBackwardOut::kDX)};
  }
};

}  // namespace lockstep::graph

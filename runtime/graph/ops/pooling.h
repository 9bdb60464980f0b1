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

#include "runtime/base/host_device.h"
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

// One axis of the windows. Int: int64_t, or int in kernels on a GPU.
template <typename Int>
struct PoolAxis {
  // [begin, end).
  struct Interval {
    Int begin, end;
  };

  Int size, count;  // pixels, windows
  Int kernel, stride, padding, behind, dilation;
  bool adaptive;

  // From a window's first pixel to its last one.
  LOCKSTEP_HD Int reach() const { return (kernel - 1) * dilation + 1; }
  // The pixels that a window covers, `dilation` apart.
  LOCKSTEP_HD Interval pixels_of(Int window) const {
    if (adaptive) return adaptive_interval(window, count, size);
    const Int first = window * stride - padding, end = first + reach();
    const Int missing = first < 0 ? (dilation - 1 - first) / dilation : 0;  // taps before pixel 0
    return {first + missing * dilation, end < size ? end : size};
  }
  // The windows that cover a pixel, or with dilation may do so.
  LOCKSTEP_HD Interval windows_of(Int pixel) const {
    if (adaptive) return adaptive_interval(pixel, size, count);
    const Int last = (pixel + padding) / stride + 1;
    // Windows that begin here or earlier do not cover the pixel.
    const Int before = pixel + padding - reach();
    return {before < 0 ? 0 : before / stride + 1, last < count ? last : count};
  }
  // The index of the window's tap at the pixel; below 0 if there is none.
  LOCKSTEP_HD Int tap_at(Int window, Int pixel) const {
    const Int distance = pixel - (window * stride - padding);
    if (dilation == 1) return distance;
    return distance % dilation == 0 ? distance / dilation : -1;
  }
  // The number of pixels of a window in the image and in its padding.
  LOCKSTEP_HD Int counted(Int window) const {
    const Int first = window * stride - padding, end = size + behind;
    return (first + kernel < end ? first + kernel : end) - first;
  }

 private:
  // For adaptive windows: the interval of `to` that belongs to index `i` of `from`. Converts
  // windows to pixels, or pixels to windows.
  LOCKSTEP_HD static Interval adaptive_interval(Int i, Int from, Int to) {
    const int64_t begin = static_cast<int64_t>(i) * to;
    return {static_cast<Int>(begin / from), static_cast<Int>((begin + to + from - 1) / from)};
  }
};

// The windows of a pooling.
template <typename Int>
struct PoolWindows {
  PoolAxis<Int> down, across;
  bool count_include_pad;

  // The divisor of a window's sum.
  LOCKSTEP_HD float area(Int row, Int column) const {
    if (count_include_pad) return static_cast<float>(down.counted(row) * across.counted(column));
    const auto rows = down.pixels_of(row), columns = across.pixels_of(column);
    return static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
  }
};

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

  int64_t pixels_in() const { return images * height * width; }
  int64_t pixels_out() const { return images * out_height * out_width; }
  template <typename Int>
  PoolWindows<Int> windows() const {
    const PoolAttributes& w = window;
    const Extent2d behind = w.padding_behind();
    const auto axis = [&](int64_t size, int64_t count, int64_t Extent2d::*along) {
      return PoolAxis<Int>{static_cast<Int>(size),
                           static_cast<Int>(count),
                           static_cast<Int>(w.kernel.*along),
                           static_cast<Int>(w.stride.*along),
                           static_cast<Int>(w.padding.*along),
                           static_cast<Int>(behind.*along),
                           static_cast<Int>(w.dilation.*along),
                           w.adaptive};
    };
    return {axis(height, out_height, &Extent2d::height),
            axis(width, out_width, &Extent2d::width),
            w.count_include_pad && !w.adaptive};
  }
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

#pragma once
// The geometry that a convolution and the gradient of its input share. Both compute every pixel of
// a result as a sum over taps; each tap reads one pixel of another image, or padding:
//
//   c[pixel, n] = sum over taps and k of a[source(pixel, tap), k] * weight[tap, k, n]
//
// The source's coordinate along an axis is affine in that of the pixel and that of the tap. For the
// gradient of the input with stride s, this holds for every s-th pixel only. So the s phases of an
// axis are separate results, each with its own taps.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/matmul/epilogue.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/graph/window.h"

namespace lockstep::cpu {

// One axis, height or width. Pixel i is at coordinate result_first + i result_step of the result's
// image. Its tap t uses kernel entry tap_first + t tap_step and reads coordinate source_first + i
// source_step + t source_tap_step, which is padding unless it is in [0, source_extent).
struct GatherAxis {
  int64_t pixels, result_first, result_step;
  int64_t taps, tap_first, tap_step;
  int64_t source_first, source_step, source_tap_step, source_extent;
};

// The axis of a forward convolution.
constexpr GatherAxis forward_axis(
    int64_t extent, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  return {.pixels = graph::window_count(extent, kernel, stride, pad, dilation),
          .result_first = 0,
          .result_step = 1,
          .taps = kernel,
          .tap_first = 0,
          .tap_step = 1,
          .source_first = -pad,
          .source_step = stride,
          .source_tap_step = dilation,
          .source_extent = extent};
}

// The axis of the gradient of the input, for the pixels phase, phase + stride, ... Output i reads
// pixel i stride - pad + tap dilation. So pixel h receives a share of the gradient of output (h +
// pad - tap dilation) / stride, if that is an integer.
constexpr GatherAxis backward_axis(
    int64_t extent, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, int64_t phase) {
  int64_t first = 0;
  while (first < stride && (phase + pad - first * dilation) % stride != 0) ++first;
  const int64_t step = stride / std::gcd(stride, dilation);
  const bool any = first < std::min(stride, kernel);
  return {.pixels = phase < extent ? ceil_div(extent - phase, stride) : 0,
          .result_first = phase,
          .result_step = stride,
          .taps = any ? ceil_div(kernel - first, step) : 0,
          .tap_first = first,
          .tap_step = step,
          .source_first = any ? (phase + pad - first * dilation) / stride : 0,
          .source_step = 1,
          .source_tap_step = -(step * dilation / stride),
          .source_extent = graph::window_count(extent, kernel, stride, pad, dilation)};
}

// Offsets of pixel (image, i, j) within a tensor, in elements.
struct PixelStrides {
  int64_t image, row, pixel;
};

inline PixelStrides pixel_strides(int64_t height, int64_t width, int64_t channels) {
  return {height * width * channels, width * channels, channels};
}

// Calls body(axis of height, axis of width) for the phases of the gradient of the input.
template <typename Body>
void for_each_phase(const graph::Conv2dShape& s, const Body& body) {
  for (int64_t i = 0; i < std::min(s.stride_h, s.height); ++i) {
    const GatherAxis h = backward_axis(s.height, s.kernel_h, s.stride_h, s.pad_h, s.dilation_h, i);
    for (int64_t j = 0; j < std::min(s.stride_w, s.width); ++j) {
      body(h, backward_axis(s.width, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w, j));
    }
  }
}

// T: what the result and the weights store; Source: what `a` stores. Each is float or BFloat16.
template <typename T, typename Source>
struct GatherFrom {
  int64_t images;
  GatherAxis h, w;
  const Source* a;
  PixelStrides a_strides;
  int64_t depth;  // channels of a that each tap reads
  // Element (tap, k, n) of the weights is at tap * tap_stride + k * weight_stride + n, or at tap *
  // tap_stride + n * weight_stride + k if transposed; tap = row * kernel_w + column of the kernel.
  const T* weights;
  int64_t kernel_w, tap_stride, weight_stride;
  bool transposed;
  int64_t columns;  // n
  T* c;
  PixelStrides c_strides;
  Epilogue<T> epilogue = {};

  int64_t taps() const { return h.taps * w.taps; }
  int64_t pixels() const { return images * h.pixels * w.pixels; }
};

template <typename T>
using Gather = GatherFrom<T, T>;

// The convolution of group 0.
template <typename T>
Gather<T> forward_gather(const Conv2dProduct<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t depth = s.group_channels();
  return {.images = s.batch,
          .h = forward_axis(s.height, s.kernel_h, s.stride_h, s.pad_h, s.dilation_h),
          .w = forward_axis(s.width, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w),
          .a = op.x,
          .a_strides = pixel_strides(s.height, s.width, s.channels),
          .depth = depth,
          .weights = op.w,
          .kernel_w = s.kernel_w,
          .tap_stride = depth,
          .weight_stride = s.kernel_h * s.kernel_w * depth,
          .transposed = true,
          .columns = s.group_outputs(),
          .c = op.y,
          .c_strides = pixel_strides(s.out_height(), s.out_width(), s.outputs),
          .epilogue = op.epilogue};
}

// The gradient of the input of group 0, for one phase of each axis.
template <typename T>
Gather<T> backward_gather(const graph::Conv2dBackward<T>& op,
                          const GatherAxis& axis_h,
                          const GatherAxis& axis_w) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t columns = s.group_channels();
  return {.images = s.batch,
          .h = axis_h,
          .w = axis_w,
          .a = op.d_y,
          .a_strides = pixel_strides(s.out_height(), s.out_width(), s.outputs),
          .depth = s.group_outputs(),
          .weights = op.weight,
          .kernel_w = s.kernel_w,
          .tap_stride = columns,
          .weight_stride = s.kernel_h * s.kernel_w * columns,
          .transposed = false,
          .columns = columns,
          .c = op.d_x,
          .c_strides = pixel_strides(s.height, s.width, s.channels)};
}

// Calls run(gather) for each group, from the gather of group 0.
template <typename T, typename Run>
void for_each_group(const graph::Conv2dShape& s, Gather<T> g, const Run& run) {
  for (int64_t group = 0; group < s.groups; ++group) {
    run(g);
    g.a += g.depth;
    g.weights += (g.transposed ? g.columns : g.depth) * g.weight_stride;
    g.c += g.columns;
    g.epilogue = g.epilogue.from(g.columns, g.columns);
  }
}

// Cuts the depth, taps x channels, into blocks that fit into a packed panel of weights: either
// several full taps, or a part of the channels of one tap.
struct TapBlocks {
  int64_t taps, depth;
  int64_t block_taps;  // taps of every block but the last
  DepthBlocks parts;   // blocks of the channels
  constexpr TapBlocks(int64_t taps, int64_t depth)
      : taps(taps), depth(depth), block_taps(1), parts(depth) {
    if (depth > 0 && depth <= kDepthBlock) {
      const int64_t most = std::clamp<int64_t>(kDepthBlock / depth, 1, kMaxTaps);
      block_taps = ceil_div(taps, std::max<int64_t>(1, ceil_div(taps, most)));
    }
  }
  constexpr int64_t count() const {
    return taps == 0 ? 0 : ceil_div(taps, block_taps) * parts.count();
  }
  constexpr Range tap_range(int64_t block) const {
    const int64_t first = block / parts.count() * block_taps;
    return {first, std::min(taps, first + block_taps)};
  }
  constexpr Range depth_range(int64_t block) const { return parts.range(block % parts.count()); }
  // Rows of the largest packed panel.
  constexpr int64_t max_rows() const { return block_taps * parts.length; }

  static constexpr int64_t kMaxTaps = 64;
};

// Pixels that are multiplied with a panel of weights before it is packed again: enough to make the
// cost of packing negligible, but few enough for their channels to stay in the cache.
constexpr int64_t gather_block_pixels(int64_t depth) {
  return std::clamp(round_up(kBlockFloats / std::max<int64_t>(1, depth), kRowUnit),
                    64 * kRowUnit,
                    128 * kRowUnit);
}
// The same if sums are rounded, so that copies in floats of the sums, and of up to `rows` numbers
// that each pixel reads, must stay in the cache.
constexpr int64_t rounded_block_pixels(int64_t rows) {
  return std::clamp(
      kBlockFloats / std::max<int64_t>(1, rows) / kRowUnit * kRowUnit, kRowUnit, 32 * kRowUnit);
}

// Scratch memory of one worker, in bytes. T and Source: see GatherFrom.
template <typename T, typename Source>
struct GatherScratch {
  // Numbers that are not floats are multiplied and summed in copies in floats.
  static constexpr bool kRounds = !std::is_same_v<T, float>;
  static constexpr bool kWidens = !std::is_same_v<Source, float>;

  GatherScratch(int64_t taps, int64_t depth, int64_t pixels, int64_t columns) {
    const TapBlocks blocks(taps, depth);
    block_pixels =
        std::min(round_up(pixels, kRowUnit),
                 kRounds ? rounded_block_pixels(blocks.max_rows()) : gather_block_pixels(depth));
    block_columns = kRounds ? std::min(columns, kSummedColumns) : columns;
    panel = round_up(std::min(round_up(columns, 16), kMaxPanel) * blocks.max_rows() + 16, 16) *
            sizeof(float);
    sources = block_pixels * blocks.block_taps * sizeof(const float*);
    pixels_bytes = block_pixels * kPixelBytes;
    // With a gap, because rows that lie a multiple of the page size apart would compete for the
    // same cache lines.
    sum_stride = round_up(block_columns, kMaxPanel) + 16;
    sums = kRounds ? block_pixels * sum_stride * sizeof(float) : 0;
    widened = kWidens ? block_pixels * blocks.max_rows() * sizeof(float) : 0;
  }
  int64_t bytes() const {
    return panel + sums + round_up(widened, 64) + round_up(sources + pixels_bytes, 64);
  }

  static constexpr int64_t kPixelBytes = kRounds ? 40 : 32;  // of GatherPixels, per pixel
  static constexpr int64_t kSummedColumns = 512;             // of the sums that are kept

  int64_t block_pixels, block_columns;
  int64_t panel, sums, widened, sources, pixels_bytes;
  int64_t sum_stride;  // in floats
};

}  // namespace lockstep::cpu

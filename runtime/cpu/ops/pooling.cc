// Every output, and in the backward pass every pixel of x, is computed by one thread from its
// windows, in a fixed order. So the bits do not depend on threads, and nothing is summed across
// them. Vectors run along the channels.
#include "runtime/graph/ops/pooling.h"

#include <algorithm>
#include <limits>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/pooling.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_POOLING_CC
#define LOCKSTEP_RUNTIME_CPU_POOLING_CC
namespace lockstep::cpu {

// An interval [begin, end) along one axis.
struct Interval {
  int64_t begin, end;
};

// The pixels that a window covers, `dilation` apart.
inline Interval pixels_of(int64_t window,
                          int64_t kernel,
                          int64_t stride,
                          int64_t padding,
                          int64_t size,
                          int64_t dilation = 1) {
  const int64_t first = window * stride - padding;
  // Taps before pixel 0.
  const int64_t missing = first < 0 ? (-first + dilation - 1) / dilation : 0;
  return {first + missing * dilation, std::min(first + (kernel - 1) * dilation + 1, size)};
}

// The index of the tap at this distance from the first one; below 0 if there is none.
inline int64_t tap_at(int64_t distance, int64_t dilation) {
  if (dilation == 1) return distance;
  return distance % dilation == 0 ? distance / dilation : -1;
}

// The number of pixels of a window, from `first` on, that are in the image or in its padding;
// `behind` is the padding after the image.
inline int64_t counted(
    int64_t window, int64_t kernel, int64_t stride, int64_t padding, int64_t size, int64_t behind) {
  const int64_t first = window * stride - padding;
  return std::min(first + kernel, size + behind) - first;
}

// The windows that cover a pixel.
inline Interval windows_of(
    int64_t pixel, int64_t kernel, int64_t stride, int64_t padding, int64_t count) {
  const int64_t last = (pixel + padding) / stride;
  // Windows that begin here or earlier do not cover the pixel.
  const int64_t before = pixel + padding - kernel;
  const int64_t first = before < 0 ? 0 : before / stride + 1;
  return {first, std::min(last + 1, count)};
}

// For adaptive windows: the interval of `to` that belongs to index `i` of `from`. Converts windows
// to pixels, or pixels to windows.
inline Interval adaptive(int64_t i, int64_t from, int64_t to) {
  return {i * to / from, ((i + 1) * to + from - 1) / from};
}

// Rows and columns that a window of average pooling covers.
inline Interval mean_rows(const graph::PoolShape& s, int64_t row) {
  const graph::PoolAttributes& w = s.window;
  if (w.adaptive) return adaptive(row, s.out_height, s.height);
  return pixels_of(row, w.kernel.height, w.stride.height, w.padding.height, s.height);
}
inline Interval mean_columns(const graph::PoolShape& s, int64_t column) {
  const graph::PoolAttributes& w = s.window;
  if (w.adaptive) return adaptive(column, s.out_width, s.width);
  return pixels_of(column, w.kernel.width, w.stride.width, w.padding.width, s.width);
}

// The divisor of a window's sum.
inline float window_area(const graph::PoolShape& s, int64_t row, int64_t column) {
  const graph::PoolAttributes& w = s.window;
  if (w.count_include_pad && !w.adaptive) {
    const graph::Extent2d behind = w.padding_behind();
    return static_cast<float>(
        counted(row, w.kernel.height, w.stride.height, w.padding.height, s.height, behind.height) *
        counted(column, w.kernel.width, w.stride.width, w.padding.width, s.width, behind.width));
  }
  const Interval rows = mean_rows(s, row), columns = mean_columns(s, column);
  return static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

using Bytes = hn::Rebind<uint8_t, F32>;
using Integers = hn::RebindToSigned<F32>;

HWY_INLINE hn::Vec<Integers> load_taps(const uint8_t* from, size_t count) {
  HWY_ALIGN uint8_t lanes[kVecLanes] = {};
  if (count < kVecLanes) {
    std::copy_n(from, count, lanes);
    from = lanes;
  }
  return hn::PromoteTo(Integers(), hn::LoadU(Bytes(), from));
}
HWY_INLINE void store_taps(hn::Vec<Integers> taps, uint8_t* to, size_t count) {
  const auto bytes = hn::DemoteTo(Bytes(), taps);
  if (count >= kVecLanes) return hn::StoreU(bytes, Bytes(), to);
  HWY_ALIGN uint8_t lanes[kVecLanes];
  hn::StoreU(bytes, Bytes(), lanes);
  std::copy_n(lanes, count, to);
}

// Rows [begin, end) of y, counted over all images.
void max_pool_forward_kernel(const graph::PoolShape& s,
                             const float* x,
                             float* y,
                             uint8_t* max_taps,
                             int64_t begin,
                             int64_t end) {
  const graph::PoolAttributes& w = s.window;
  const auto channels = static_cast<size_t>(s.channels);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.out_height, out_row = row % s.out_height;
    const Interval rows = pixels_of(
        out_row, w.kernel.height, w.stride.height, w.padding.height, s.height, w.dilation.height);
    const int64_t top = out_row * w.stride.height - w.padding.height;
    for (int64_t column = 0; column < s.out_width; ++column) {
      const Interval columns = pixels_of(
          column, w.kernel.width, w.stride.width, w.padding.width, s.width, w.dilation.width);
      const int64_t left = column * w.stride.width - w.padding.width;
      const int64_t at = (row * s.out_width + column) * s.channels;
      for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
        // The first pixel wins ties, and is the maximum so far whatever its value.
        Vec best = set(-std::numeric_limits<float>::infinity());
        int64_t tap_row = (rows.begin - top) / w.dilation.height;
        const int64_t first_tap = (columns.begin - left) / w.dilation.width;
        auto best_tap =
            hn::Set(Integers(), static_cast<int32_t>(tap_row * w.kernel.width + first_tap));
        for (int64_t h = rows.begin; h < rows.end; h += w.dilation.height, ++tap_row) {
          auto number = static_cast<int32_t>(tap_row * w.kernel.width + first_tap);
          for (int64_t v = columns.begin; v < columns.end; v += w.dilation.width, ++number) {
            const int64_t pixel = (image * s.height + h) * s.width + v;
            const Vec value = access.load(x + pixel * s.channels + static_cast<int64_t>(c));
            const auto larger = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
            const auto tap = hn::Set(Integers(), number);
            best = hn::IfThenElse(larger, value, best);
            best_tap = hn::IfThenElse(hn::RebindMask(Integers(), larger), tap, best_tap);
          }
        }
        access.store(best, y + at + static_cast<int64_t>(c));
        if (max_taps != nullptr)
          store_taps(best_tap, max_taps + at + static_cast<int64_t>(c), channels - c);
      });
    }
  }
}

// Rows [begin, end) of d_x, counted over all images.
void max_pool_backward_kernel(const graph::PoolShape& s,
                              const float* d_y,
                              const uint8_t* max_taps,
                              float* d_x,
                              int64_t begin,
                              int64_t end) {
  const graph::PoolAttributes& w = s.window;
  const auto channels = static_cast<size_t>(s.channels);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.height, h = row % s.height;
    const int64_t reach_down = (w.kernel.height - 1) * w.dilation.height + 1;
    const int64_t reach_across = (w.kernel.width - 1) * w.dilation.width + 1;
    const Interval rows =
        windows_of(h, reach_down, w.stride.height, w.padding.height, s.out_height);
    for (int64_t v = 0; v < s.width; ++v) {
      const Interval columns =
          windows_of(v, reach_across, w.stride.width, w.padding.width, s.out_width);
      float* const to = d_x + (row * s.width + v) * s.channels;
      for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t out_row = rows.begin; out_row < rows.end; ++out_row) {
          const int64_t down =
              tap_at(h - (out_row * w.stride.height - w.padding.height), w.dilation.height);
          if (down < 0) continue;
          for (int64_t column = columns.begin; column < columns.end; ++column) {
            const int64_t across =
                tap_at(v - (column * w.stride.width - w.padding.width), w.dilation.width);
            if (across < 0) continue;
            const int64_t window = (image * s.out_height + out_row) * s.out_width + column;
            const int64_t at = window * s.channels + static_cast<int64_t>(c);
            const auto tap =
                hn::Set(Integers(), static_cast<int32_t>(down * w.kernel.width + across));
            const auto mine = hn::Eq(load_taps(max_taps + at, channels - c), tap);
            sum = hn::Add(sum,
                          hn::IfThenElseZero(hn::RebindMask(F32(), mine), access.load(d_y + at)));
          }
        }
        access.store(sum, to + c);
      });
    }
  }
}

void avg_pool_forward_kernel(
    const graph::PoolShape& s, const float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.out_height, out_row = row % s.out_height;
    const Interval rows = mean_rows(s, out_row);
    for (int64_t column = 0; column < s.out_width; ++column) {
      const Interval columns = mean_columns(s, column);
      const Vec area = set(window_area(s, out_row, column));
      float* const to = y + (row * s.out_width + column) * s.channels;
      for_each_vector(static_cast<size_t>(s.channels), [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t h = rows.begin; h < rows.end; ++h) {
          for (int64_t v = columns.begin; v < columns.end; ++v) {
            const int64_t pixel = (image * s.height + h) * s.width + v;
            sum = hn::Add(sum, access.load(x + pixel * s.channels + static_cast<int64_t>(c)));
          }
        }
        access.store(hn::Div(sum, area), to + c);
      });
    }
  }
}

void avg_pool_backward_kernel(
    const graph::PoolShape& s, const float* d_y, float* d_x, int64_t begin, int64_t end) {
  const graph::PoolAttributes& w = s.window;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.height, h = row % s.height;
    const Interval rows =
        w.adaptive
            ? adaptive(h, s.height, s.out_height)
            : windows_of(h, w.kernel.height, w.stride.height, w.padding.height, s.out_height);
    for (int64_t v = 0; v < s.width; ++v) {
      const Interval columns =
          w.adaptive ? adaptive(v, s.width, s.out_width)
                     : windows_of(v, w.kernel.width, w.stride.width, w.padding.width, s.out_width);
      float* const to = d_x + (row * s.width + v) * s.channels;
      for_each_vector(static_cast<size_t>(s.channels), [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t out_row = rows.begin; out_row < rows.end; ++out_row) {
          for (int64_t column = columns.begin; column < columns.end; ++column) {
            const int64_t window = (image * s.out_height + out_row) * s.out_width + column;
            const Vec part = access.load(d_y + window * s.channels + static_cast<int64_t>(c));
            sum = hn::Add(sum, hn::Div(part, set(window_area(s, out_row, column))));
          }
        }
        access.store(sum, to + c);
      });
    }
  }
}

// y of channels [begin, end) of one image. Four sums alternate, so that additions do not wait for
// each other.
void global_avg_pool_forward_kernel(
    const float* x, int64_t pixels, int64_t channels, int64_t begin, int64_t end, float* y) {
  const Vec count = set(static_cast<float>(pixels));
  for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto access) HWY_ATTR {
    const float* const from = x + begin + static_cast<int64_t>(i);
    Vec sums[4] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
    int64_t pixel = 0;
    for (; pixel + 4 <= pixels; pixel += 4) {
      for (int64_t k = 0; k < 4; ++k)
        sums[k] = hn::Add(sums[k], access.load(from + (pixel + k) * channels));
    }
    for (; pixel < pixels; ++pixel)
      sums[0] = hn::Add(sums[0], access.load(from + pixel * channels));
    const Vec sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
    access.store(hn::Div(sum, count), y + begin + i);
  });
}

void global_avg_pool_backward_kernel(
    const float* d_y, int64_t pixels, int64_t channels, int64_t begin, int64_t end, float* d_x) {
  const Vec count = set(static_cast<float>(pixels));
  for (int64_t row = begin; row < end; ++row) {
    const float* const from = d_y + row / pixels * channels;
    for_each_vector(static_cast<size_t>(channels), [&](size_t c, auto access) HWY_ATTR {
      access.store(hn::Div(access.load(from + c), count),
                   d_x + row * channels + static_cast<int64_t>(c));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(max_pool_forward_kernel);
HWY_EXPORT(max_pool_backward_kernel);
HWY_EXPORT(avg_pool_forward_kernel);
HWY_EXPORT(avg_pool_backward_kernel);
HWY_EXPORT(global_avg_pool_forward_kernel);
HWY_EXPORT(global_avg_pool_backward_kernel);

namespace {

// Runs body(begin, end) over the rows of all images' outputs, or inputs.
template <typename Body>
void over_outputs(const graph::PoolShape& s, Body&& body) {
  const int64_t work = s.window.kernel.height * s.window.kernel.width * s.out_width * s.channels;
  parallel_for(s.images * s.out_height, grain_rows(work), body);
}
template <typename Body>
void over_inputs(const graph::PoolShape& s, Body&& body) {
  parallel_for(s.images * s.height, grain_rows(s.width * s.channels), body);
}

void run_max_pool(const graph::PoolForward<float>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(max_pool_forward_kernel);
  over_outputs(op.shape, [&](int64_t begin, int64_t end) {
    kernel(op.shape, op.x, op.y, op.place, begin, end);
  });
}

void run_max_pool_backward(const graph::PoolBackward<float>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(max_pool_backward_kernel);
  over_inputs(op.shape, [&](int64_t begin, int64_t end) {
    kernel(op.shape, op.d_y, op.place, op.d_x, begin, end);
  });
}

void run_avg_pool(const graph::PoolForward<float>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(avg_pool_forward_kernel);
  over_outputs(op.shape,
               [&](int64_t begin, int64_t end) { kernel(op.shape, op.x, op.y, begin, end); });
}

void run_avg_pool_backward(const graph::PoolBackward<float>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(avg_pool_backward_kernel);
  over_inputs(op.shape,
              [&](int64_t begin, int64_t end) { kernel(op.shape, op.d_y, op.d_x, begin, end); });
}

void run_global_avg_pool(const graph::GlobalAvgPoolForward<float>& op) {
  // The work is also divided by channels, because a lane may have only one image.
  constexpr int64_t kChannels = 128;
  const int64_t parts = (op.channels + kChannels - 1) / kChannels;
  const auto kernel = HWY_DYNAMIC_DISPATCH(global_avg_pool_forward_kernel);
  parallel_for(op.images * parts,
               grain_rows(op.pixels * std::min(op.channels, kChannels)),
               [&](int64_t first, int64_t last) {
                 for (int64_t i = first; i < last; ++i) {
                   const int64_t image = i / parts, begin = i % parts * kChannels;
                   kernel(op.x + image * op.pixels * op.channels,
                          op.pixels,
                          op.channels,
                          begin,
                          std::min(op.channels, begin + kChannels),
                          op.y + image * op.channels);
                 }
               });
}

void run_global_avg_pool_backward(const graph::GlobalAvgPoolBackward<float>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(global_avg_pool_backward_kernel);
  parallel_for(op.images * op.pixels, grain_rows(op.channels), [&](int64_t begin, int64_t end) {
    kernel(op.d_y, op.pixels, op.channels, begin, end, op.d_x);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_max_pool>(graph::OpKind::kMaxPool, "simd"),
    exec::row<run_max_pool_backward>(graph::OpKind::kMaxPoolBackward, "simd"),
    exec::row<run_avg_pool>(graph::OpKind::kAvgPool, "simd"),
    exec::row<run_avg_pool_backward>(graph::OpKind::kAvgPoolBackward, "simd"),
    exec::row<run_global_avg_pool>(graph::OpKind::kGlobalAvgPool, "simd"),
    exec::row<run_global_avg_pool_backward>(graph::OpKind::kGlobalAvgPoolBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuPooling = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

// Every output, and in the backward pass every pixel of x, is computed by one thread from its
// windows, in a fixed order. So the bits do not depend on threads, and nothing is summed across
// them. Vectors run along the channels.
#include "runtime/graph/ops/pooling.h"

#include <algorithm>
#include <limits>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/pooling.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

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
template <typename T>
void max_pool_forward(const graph::PoolForward<T>& op, int64_t begin, int64_t end) {
  const graph::PoolShape& s = op.shape;
  const auto windows = s.windows<int64_t>();
  const auto &down = windows.down, &across = windows.across;
  const auto channels = static_cast<size_t>(s.channels);
  const T* const x = op.x;
  uint8_t* const max_taps = op.place;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.out_height, out_row = row % s.out_height;
    const auto rows = down.pixels_of(out_row);
    for (int64_t column = 0; column < s.out_width; ++column) {
      const auto columns = across.pixels_of(column);
      const int64_t at = (row * s.out_width + column) * s.channels;
      for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
        // The first pixel wins ties, and is the maximum so far whatever its value.
        Vec best = set(-std::numeric_limits<float>::infinity());
        int64_t tap_row = down.tap_at(out_row, rows.begin);
        const int64_t first_tap = across.tap_at(column, columns.begin);
        auto best_tap =
            hn::Set(Integers(), static_cast<int32_t>(tap_row * across.kernel + first_tap));
        for (int64_t h = rows.begin; h < rows.end; h += down.dilation, ++tap_row) {
          auto number = static_cast<int32_t>(tap_row * across.kernel + first_tap);
          for (int64_t v = columns.begin; v < columns.end; v += across.dilation, ++number) {
            const int64_t pixel = (image * s.height + h) * s.width + v;
            const Vec value = access.load(x + pixel * s.channels + static_cast<int64_t>(c));
            const auto larger = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
            const auto tap = hn::Set(Integers(), number);
            best = hn::IfThenElse(larger, value, best);
            best_tap = hn::IfThenElse(hn::RebindMask(Integers(), larger), tap, best_tap);
          }
        }
        access.store(best, op.y + at + static_cast<int64_t>(c));
        if (max_taps != nullptr)
          store_taps(best_tap, max_taps + at + static_cast<int64_t>(c), channels - c);
      });
    }
  }
}

// Rows [begin, end) of d_x, counted over all images.
template <typename T>
void max_pool_backward(const graph::PoolBackward<T>& op, int64_t begin, int64_t end) {
  const graph::PoolShape& s = op.shape;
  const auto windows = s.windows<int64_t>();
  const auto &down = windows.down, &across = windows.across;
  const auto channels = static_cast<size_t>(s.channels);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.height, h = row % s.height;
    const auto rows = down.windows_of(h);
    for (int64_t v = 0; v < s.width; ++v) {
      const auto columns = across.windows_of(v);
      T* const to = op.d_x + (row * s.width + v) * s.channels;
      for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t out_row = rows.begin; out_row < rows.end; ++out_row) {
          const int64_t tap_row = down.tap_at(out_row, h);
          if (tap_row < 0) continue;
          for (int64_t column = columns.begin; column < columns.end; ++column) {
            const int64_t tap_column = across.tap_at(column, v);
            if (tap_column < 0) continue;
            const int64_t window = (image * s.out_height + out_row) * s.out_width + column;
            const int64_t at = window * s.channels + static_cast<int64_t>(c);
            const auto tap =
                hn::Set(Integers(), static_cast<int32_t>(tap_row * across.kernel + tap_column));
            const auto mine = hn::Eq(load_taps(op.place + at, channels - c), tap);
            sum = hn::Add(
                sum, hn::IfThenElseZero(hn::RebindMask(F32(), mine), access.load(op.d_y + at)));
          }
        }
        access.store(sum, to + c);
      });
    }
  }
}

template <typename T>
void avg_pool_forward(const graph::PoolForward<T>& op, int64_t begin, int64_t end) {
  const graph::PoolShape& s = op.shape;
  const auto windows = s.windows<int64_t>();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.out_height, out_row = row % s.out_height;
    const auto rows = windows.down.pixels_of(out_row);
    for (int64_t column = 0; column < s.out_width; ++column) {
      const auto columns = windows.across.pixels_of(column);
      const Vec area = set(windows.area(out_row, column));
      T* const to = op.y + (row * s.out_width + column) * s.channels;
      for_each_vector(static_cast<size_t>(s.channels), [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t h = rows.begin; h < rows.end; ++h) {
          for (int64_t v = columns.begin; v < columns.end; ++v) {
            const int64_t pixel = (image * s.height + h) * s.width + v;
            sum = hn::Add(sum, access.load(op.x + pixel * s.channels + static_cast<int64_t>(c)));
          }
        }
        access.store(hn::Div(sum, area), to + c);
      });
    }
  }
}

template <typename T>
void avg_pool_backward(const graph::PoolBackward<T>& op, int64_t begin, int64_t end) {
  const graph::PoolShape& s = op.shape;
  const auto windows = s.windows<int64_t>();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / s.height, h = row % s.height;
    const auto rows = windows.down.windows_of(h);
    for (int64_t v = 0; v < s.width; ++v) {
      const auto columns = windows.across.windows_of(v);
      T* const to = op.d_x + (row * s.width + v) * s.channels;
      for_each_vector(static_cast<size_t>(s.channels), [&](size_t c, auto access) HWY_ATTR {
        Vec sum = hn::Zero(F32());
        for (int64_t out_row = rows.begin; out_row < rows.end; ++out_row) {
          for (int64_t column = columns.begin; column < columns.end; ++column) {
            const int64_t window = (image * s.out_height + out_row) * s.out_width + column;
            const Vec part = access.load(op.d_y + window * s.channels + static_cast<int64_t>(c));
            sum = hn::Add(sum, hn::Div(part, set(windows.area(out_row, column))));
          }
        }
        access.store(sum, to + c);
      });
    }
  }
}

// y of channels [begin, end) of one image. Four sums alternate, so that additions do not wait for
// each other.
template <typename T>
void global_avg_pool_forward(const graph::GlobalAvgPoolForward<T>& op,
                             int64_t image,
                             int64_t begin,
                             int64_t end) {
  const int64_t pixels = op.pixels, channels = op.channels;
  const T* const x = op.x + image * pixels * channels;
  T* const y = op.y + image * channels;
  const Vec count = set(static_cast<float>(pixels));
  for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto access) HWY_ATTR {
    const T* const from = x + begin + static_cast<int64_t>(i);
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

// Pixels [begin, end) of d_x, counted over all images.
template <typename T>
void global_avg_pool_backward(const graph::GlobalAvgPoolBackward<T>& op,
                              int64_t begin,
                              int64_t end) {
  const Vec count = set(static_cast<float>(op.pixels));
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = op.d_y + row / op.pixels * op.channels;
    for_each_vector(static_cast<size_t>(op.channels), [&](size_t c, auto access) HWY_ATTR {
      access.store(hn::Div(access.load(from + c), count),
                   op.d_x + row * op.channels + static_cast<int64_t>(c));
    });
  }
}

void max_pool_forward_kernel(AnyStored<graph::PoolForward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { max_pool_forward(op, begin, end); });
}
void max_pool_backward_kernel(AnyStored<graph::PoolBackward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { max_pool_backward(op, begin, end); });
}
void avg_pool_forward_kernel(AnyStored<graph::PoolForward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { avg_pool_forward(op, begin, end); });
}
void avg_pool_backward_kernel(AnyStored<graph::PoolBackward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { avg_pool_backward(op, begin, end); });
}
void global_avg_pool_forward_kernel(AnyStored<graph::GlobalAvgPoolForward> stored,
                                    int64_t image,
                                    int64_t begin,
                                    int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { global_avg_pool_forward(op, image, begin, end); });
}
void global_avg_pool_backward_kernel(AnyStored<graph::GlobalAvgPoolBackward> stored,
                                     int64_t begin,
                                     int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { global_avg_pool_backward(op, begin, end); });
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

// Runs the kernel over the rows of all images' outputs, or inputs.
template <typename Kernel, typename T>
void over_outputs(Kernel kernel, const graph::PoolForward<T>& op) {
  const graph::PoolShape& s = op.shape;
  const int64_t work = s.window.kernel.height * s.window.kernel.width * s.out_width * s.channels;
  in_parallel(s.images * s.out_height, grain_rows(work), kernel, op);
}
template <typename Kernel, typename T>
void over_inputs(Kernel kernel, const graph::PoolBackward<T>& op) {
  const graph::PoolShape& s = op.shape;
  in_parallel(s.images * s.height, grain_rows(s.width * s.channels), kernel, op);
}

template <typename T>
void run_max_pool(const graph::PoolForward<T>& op) {
  over_outputs(HWY_DYNAMIC_DISPATCH(max_pool_forward_kernel), op);
}
template <typename T>
void run_max_pool_backward(const graph::PoolBackward<T>& op) {
  over_inputs(HWY_DYNAMIC_DISPATCH(max_pool_backward_kernel), op);
}
template <typename T>
void run_avg_pool(const graph::PoolForward<T>& op) {
  over_outputs(HWY_DYNAMIC_DISPATCH(avg_pool_forward_kernel), op);
}
template <typename T>
void run_avg_pool_backward(const graph::PoolBackward<T>& op) {
  over_inputs(HWY_DYNAMIC_DISPATCH(avg_pool_backward_kernel), op);
}

template <typename T>
void run_global_avg_pool(const graph::GlobalAvgPoolForward<T>& op) {
  // The work is also divided by channels, because a lane may have only one image.
  constexpr int64_t kChannels = 128;
  const int64_t parts = (op.channels + kChannels - 1) / kChannels;
  const auto kernel = HWY_DYNAMIC_DISPATCH(global_avg_pool_forward_kernel);
  parallel_for(op.images * parts,
               grain_rows(op.pixels * std::min(op.channels, kChannels)),
               [&](int64_t first, int64_t last) {
                 for (int64_t i = first; i < last; ++i) {
                   const int64_t image = i / parts, begin = i % parts * kChannels;
                   kernel(op, image, begin, std::min(op.channels, begin + kChannels));
                 }
               });
}

template <typename T>
void run_global_avg_pool_backward(const graph::GlobalAvgPoolBackward<T>& op) {
  in_parallel(op.images * op.pixels,
              grain_rows(op.channels),
              HWY_DYNAMIC_DISPATCH(global_avg_pool_backward_kernel),
              op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_max_pool<float>, run_max_pool<BFloat16>>(graph::OpKind::kMaxPool, "simd"),
    native_row<run_max_pool_backward<float>, run_max_pool_backward<BFloat16>>(
        graph::OpKind::kMaxPoolBackward, "simd"),
    native_row<run_avg_pool<float>, run_avg_pool<BFloat16>>(graph::OpKind::kAvgPool, "simd"),
    native_row<run_avg_pool_backward<float>, run_avg_pool_backward<BFloat16>>(
        graph::OpKind::kAvgPoolBackward, "simd"),
    native_row<run_global_avg_pool<float>, run_global_avg_pool<BFloat16>>(
        graph::OpKind::kGlobalAvgPool, "simd"),
    native_row<run_global_avg_pool_backward<float>, run_global_avg_pool_backward<BFloat16>>(
        graph::OpKind::kGlobalAvgPoolBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuPooling = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

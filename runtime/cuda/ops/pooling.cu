#include "runtime/graph/ops/pooling.h"

#include <limits>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

// One axis of the windows.
struct Axis {
  int size, count;  // pixels, windows
  int kernel, stride, padding, behind, dilation;
  bool adaptive;

  __device__ __forceinline__ int reach() const { return (kernel - 1) * dilation + 1; }
};

// An interval [begin, end) along one axis.
struct Interval {
  int begin, end;
};

// For adaptive windows: the interval of `to` that belongs to index `i` of `from`. Converts windows
// to pixels, or pixels to windows.
__device__ __forceinline__ Interval adaptive_interval(int i, int from, int to) {
  const int64_t begin = static_cast<int64_t>(i) * to;
  return {static_cast<int>(begin / from), static_cast<int>((begin + to + from - 1) / from)};
}

// The pixels that a window covers.
__device__ __forceinline__ Interval pixels_of(const Axis& a, int window) {
  if (a.adaptive) return adaptive_interval(window, a.count, a.size);
  const int first = window * a.stride - a.padding, end = first + a.reach();
  const int missing = first < 0 ? (a.dilation - 1 - first) / a.dilation : 0;  // taps before pixel 0
  return {first + missing * a.dilation, end < a.size ? end : a.size};
}

// The windows that cover a pixel.
__device__ __forceinline__ Interval windows_of(const Axis& a, int pixel) {
  if (a.adaptive) return adaptive_interval(pixel, a.size, a.count);
  const int last = (pixel + a.padding) / a.stride + 1;
  // Windows that begin here or earlier do not cover the pixel.
  const int before = pixel + a.padding - a.reach();
  return {before < 0 ? 0 : before / a.stride + 1, last < a.count ? last : a.count};
}

// The index of the window's tap at the pixel; below 0 if there is none.
__device__ __forceinline__ int tap_at(const Axis& a, int window, int pixel) {
  const int distance = pixel - (window * a.stride - a.padding);
  if (a.dilation == 1) return distance;
  return distance % a.dilation == 0 ? distance / a.dilation : -1;
}

// The number of pixels of a window in the image and in its padding.
__device__ __forceinline__ int counted(const Axis& a, int window) {
  const int first = window * a.stride - a.padding, end = a.size + a.behind;
  return (first + a.kernel < end ? first + a.kernel : end) - first;
}

struct Windows {
  explicit Windows(const graph::PoolShape& s)
      : down{static_cast<int>(s.height),
             static_cast<int>(s.out_height),
             static_cast<int>(s.window.kernel.height),
             static_cast<int>(s.window.stride.height),
             static_cast<int>(s.window.padding.height),
             static_cast<int>(s.window.padding_behind().height),
             static_cast<int>(s.window.dilation.height),
             s.window.adaptive},
        across{static_cast<int>(s.width),
               static_cast<int>(s.out_width),
               static_cast<int>(s.window.kernel.width),
               static_cast<int>(s.window.stride.width),
               static_cast<int>(s.window.padding.width),
               static_cast<int>(s.window.padding_behind().width),
               static_cast<int>(s.window.dilation.width),
               s.window.adaptive},
        channels(s.channels),
        count_include_pad(s.window.count_include_pad && !s.window.adaptive) {}
  Axis down, across;
  int64_t channels;
  bool count_include_pad;

  // Index of the first element of a pixel of x, and of a pixel of y.
  __device__ __forceinline__ int64_t in(int image, int row, int column) const {
    return ((static_cast<int64_t>(image) * down.size + row) * across.size + column) * channels;
  }
  __device__ __forceinline__ int64_t out(int image, int row, int column) const {
    return ((static_cast<int64_t>(image) * down.count + row) * across.count + column) * channels;
  }
  // The divisor of a window's sum.
  __device__ __forceinline__ float area(int row, int column) const {
    if (count_include_pad) return static_cast<float>(counted(down, row) * counted(across, column));
    const Interval rows = pixels_of(down, row), columns = pixels_of(across, column);
    return static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
  }
};

template <typename T>
struct MaxForward {
  Windows windows;
  const T* x;
  T* y;
  uint8_t* max_taps;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const Axis &down = windows.down, &across = windows.across;
    const Pixel at(pixel, down.count, across.count);
    const Interval rows = pixels_of(down, at.row), columns = pixels_of(across, at.column);
    int tap_row = tap_at(down, at.row, rows.begin);
    const int first_tap = tap_at(across, at.column, columns.begin);
    float best[N];
    // The first pixel wins ties, and is the maximum so far whatever its value.
    Vector<uint8_t, N> tap;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      best[i] = -std::numeric_limits<float>::infinity();
      tap.at[i] = static_cast<uint8_t>(tap_row * across.kernel + first_tap);
    }
    for (int h = rows.begin; h < rows.end; h += down.dilation, ++tap_row) {
      int tap_index = tap_row * across.kernel + first_tap;
      for (int v = columns.begin; v < columns.end; v += across.dilation, ++tap_index) {
        float values[N];
        load(x + windows.in(at.image, h, v) + channel, values);
        const auto number = static_cast<uint8_t>(tap_index);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          // NaN counts as the largest.
          if (!(values[i] > best[i] || values[i] != values[i])) continue;
          best[i] = values[i];
          tap.at[i] = number;
        }
      }
    }
    const int64_t to = pixel * windows.channels + channel;
    store(best, y + to);
    if (max_taps != nullptr) store_vector(tap, max_taps + to);
  }
};

template <typename T>
struct MaxBackward {
  Windows windows;
  const T* d_y;
  const uint8_t* max_taps;
  T* d_x;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const Axis &down = windows.down, &across = windows.across;
    const Pixel at(pixel, down.size, across.size);
    const Interval rows = windows_of(down, at.row), columns = windows_of(across, at.column);
    float sums[N] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      const int tap_row = tap_at(down, row, at.row);
      if (tap_row < 0) continue;
      for (int column = columns.begin; column < columns.end; ++column) {
        const int tap_column = tap_at(across, column, at.column);
        if (tap_column < 0) continue;
        const int tap = tap_row * across.kernel + tap_column;
        const int64_t from = windows.out(at.image, row, column) + channel;
        const auto taps = *reinterpret_cast<const Vector<uint8_t, N>*>(max_taps + from);
        float gradients[N];
        load(d_y + from, gradients);
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += taps.at[i] == tap ? gradients[i] : 0.0f;
      }
    }
    store(sums, d_x + pixel * windows.channels + channel);
  }
};

template <typename T>
struct AvgForward {
  Windows windows;
  const T* x;
  T* y;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const Pixel at(pixel, windows.down.count, windows.across.count);
    const Interval rows = pixels_of(windows.down, at.row),
                   columns = pixels_of(windows.across, at.column);
    float sums[N] = {};
    for (int h = rows.begin; h < rows.end; ++h) {
      for (int v = columns.begin; v < columns.end; ++v) {
        float values[N];
        load(x + windows.in(at.image, h, v) + channel, values);
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += values[i];
      }
    }
    const float area = windows.area(at.row, at.column);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] /= area;
    store(sums, y + pixel * windows.channels + channel);
  }
};

template <typename T>
struct AvgBackward {
  Windows windows;
  const T* d_y;
  T* d_x;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const Pixel at(pixel, windows.down.size, windows.across.size);
    const Interval rows = windows_of(windows.down, at.row),
                   columns = windows_of(windows.across, at.column);
    float sums[N] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const float share = 1 / windows.area(row, column);
        float gradients[N];
        load(d_y + windows.out(at.image, row, column) + channel, gradients);
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] = fmaf(gradients[i], share, sums[i]);
      }
    }
    store(sums, d_x + pixel * windows.channels + channel);
  }
};

// One block for each image and tile of channels.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    global_avg_kernel(const T* x, int64_t pixels, int64_t channels, int width, T* y) {
  const T* const image = x + blockIdx.x * pixels * channels;
  const int64_t channel = (block_down() * width + threadIdx.x % width) * N;
  float sums[N] = {};
  if (channel < channels) {
    for (int64_t pixel = threadIdx.x / width; pixel < pixels; pixel += kTileThreads / width) {
      float values[N];
      load(image + pixel * channels + channel, values);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += values[i];
    }
  }
  add_up_tile(sums, width);
  if (channel >= channels || threadIdx.x >= static_cast<unsigned>(width)) return;
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] /= static_cast<float>(pixels);
  store(sums, y + blockIdx.x * channels + channel);
}

template <typename T, int N>
void start_global_avg(
    int64_t images, int64_t pixels, int64_t channels, const T* x, T* y, Stream stream) {
  const RowTiles tiles = row_tiles(images, channels, N, 1);
  launch({tall_grid(blocks_for(images, 1), tiles.channel_tiles), kTileThreads, stream},
         global_avg_kernel<T, N>,
         x,
         pixels,
         channels,
         tiles.width,
         y);
}

template <typename T>
struct GlobalAvgBackward {
  const T* d_y;
  T* d_x;
  int64_t channels;
  uint32_t pixels;

  template <typename Count>
  __device__ void operator()(int64_t pixel, int64_t channel, Count) const {
    constexpr int N = Count::value;
    const int64_t image = static_cast<uint32_t>(pixel) / pixels;
    float values[N];
    load(d_y + image * channels + channel, values);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] /= static_cast<float>(pixels);
    store(values, d_x + pixel * channels + channel);
  }
};

int64_t pixels_in(const graph::PoolShape& s) { return s.images * s.height * s.width; }
int64_t pixels_out(const graph::PoolShape& s) { return s.images * s.out_height * s.out_width; }

void check_size(const graph::PoolShape& s) {
  LOCKSTEP_REQUIRE(pixels_in(s) < kMaxPixels && pixels_out(s) < kMaxPixels);
}

void run_max_pool(const graph::OpCall& call) {
  by_type<graph::PoolForward>(call, [&]<typename T>(const auto& op) {
    check_size(op.shape);
    constexpr int N = kVectorWidth<T>;
    const bool vectors = is_vectorizable<T>(op.shape.channels, {op.x, op.y}) &&
                         reinterpret_cast<uintptr_t>(op.place) % N == 0;
    for_each_pixel<N>(pixels_out(op.shape),
                      op.shape.channels,
                      vectors,
                      MaxForward<T>{Windows(op.shape), op.x, op.y, op.place},
                      stream_of(call));
  });
}

void run_max_pool_backward(const graph::OpCall& call) {
  by_type<graph::PoolBackward>(call, [&]<typename T>(const auto& op) {
    check_size(op.shape);
    constexpr int N = kVectorWidth<T>;
    const bool vectors = is_vectorizable<T>(op.shape.channels, {op.d_y, op.d_x}) &&
                         reinterpret_cast<uintptr_t>(op.place) % N == 0;
    for_each_pixel<N>(pixels_in(op.shape),
                      op.shape.channels,
                      vectors,
                      MaxBackward<T>{Windows(op.shape), op.d_y, op.place, op.d_x},
                      stream_of(call));
  });
}

void run_avg_pool(const graph::OpCall& call) {
  by_type<graph::PoolForward>(call, [&]<typename T>(const auto& op) {
    check_size(op.shape);
    for_each_pixel<kVectorWidth<T>>(pixels_out(op.shape),
                                    op.shape.channels,
                                    is_vectorizable<T>(op.shape.channels, {op.x, op.y}),
                                    AvgForward<T>{Windows(op.shape), op.x, op.y},
                                    stream_of(call));
  });
}

void run_avg_pool_backward(const graph::OpCall& call) {
  by_type<graph::PoolBackward>(call, [&]<typename T>(const auto& op) {
    check_size(op.shape);
    for_each_pixel<kVectorWidth<T>>(pixels_in(op.shape),
                                    op.shape.channels,
                                    is_vectorizable<T>(op.shape.channels, {op.d_y, op.d_x}),
                                    AvgBackward<T>{Windows(op.shape), op.d_y, op.d_x},
                                    stream_of(call));
  });
}

void run_global_avg_pool(const graph::OpCall& call) {
  by_type<graph::GlobalAvgPoolForward>(call, [&]<typename T>(const auto& op) {
    if (is_vectorizable<T>(op.channels, {op.x, op.y})) {
      start_global_avg<T, kVectorWidth<T>>(
          op.images, op.pixels, op.channels, op.x, op.y, stream_of(call));
    } else {
      start_global_avg<T, 1>(op.images, op.pixels, op.channels, op.x, op.y, stream_of(call));
    }
  });
}

void run_global_avg_pool_backward(const graph::OpCall& call) {
  by_type<graph::GlobalAvgPoolBackward>(call, [&]<typename T>(const auto& op) {
    LOCKSTEP_REQUIRE(op.images * op.pixels < kMaxPixels);
    for_each_pixel<kVectorWidth<T>>(
        op.images * op.pixels,
        op.channels,
        is_vectorizable<T>(op.channels, {op.d_y, op.d_x}),
        GlobalAvgBackward<T>{op.d_y, op.d_x, op.channels, static_cast<uint32_t>(op.pixels)},
        stream_of(call));
  });
}

constexpr exec::Implementation forward(graph::OpKind kind, void (*run)(const graph::OpCall&)) {
  return {.kind = kind, .name = "native", .run = run, .supports = supports_pixels};
}
constexpr exec::Implementation backward(graph::OpKind kind, void (*run)(const graph::OpCall&)) {
  return {.kind = kind, .name = "native", .run = run, .supports = supports_pixels};
}

constexpr exec::Implementation kRows[] = {
    forward(graph::OpKind::kMaxPool, run_max_pool),
    backward(graph::OpKind::kMaxPoolBackward, run_max_pool_backward),
    forward(graph::OpKind::kAvgPool, run_avg_pool),
    backward(graph::OpKind::kAvgPoolBackward, run_avg_pool_backward),
    forward(graph::OpKind::kGlobalAvgPool, run_global_avg_pool),
    backward(graph::OpKind::kGlobalAvgPoolBackward, run_global_avg_pool_backward),
};

}  // namespace

constinit const exec::Implementations kCudaPooling = kRows;

}  // namespace lockstep::cuda

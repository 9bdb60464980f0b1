#include "runtime/graph/ops/pooling.h"

#include <limits>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

using Axis = graph::PoolAxis<int>;

struct Windows : graph::PoolWindows<int> {
  explicit Windows(const graph::PoolShape& s)
      : graph::PoolWindows<int>(s.windows<int>()), channels(s.channels) {}
  int64_t channels;

  // Index of the first element of a pixel of x, and of a pixel of y.
  __device__ __forceinline__ int64_t in(int image, int row, int column) const {
    return ((static_cast<int64_t>(image) * down.size + row) * across.size + column) * channels;
  }
  __device__ __forceinline__ int64_t out(int image, int row, int column) const {
    return ((static_cast<int64_t>(image) * down.count + row) * across.count + column) * channels;
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
    const Axis::Interval rows = down.pixels_of(at.row), columns = across.pixels_of(at.column);
    int tap_row = down.tap_at(at.row, rows.begin);
    const int first_tap = across.tap_at(at.column, columns.begin);
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
    const Axis::Interval rows = down.windows_of(at.row), columns = across.windows_of(at.column);
    float sums[N] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      const int tap_row = down.tap_at(row, at.row);
      if (tap_row < 0) continue;
      for (int column = columns.begin; column < columns.end; ++column) {
        const int tap_column = across.tap_at(column, at.column);
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
    const Axis::Interval rows = windows.down.pixels_of(at.row),
                         columns = windows.across.pixels_of(at.column);
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
    const Axis::Interval rows = windows.down.windows_of(at.row),
                         columns = windows.across.windows_of(at.column);
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
    global_avg_kernel(graph::GlobalAvgPoolForward<T> op, int width) {
  const T* const image = op.x + blockIdx.x * op.pixels * op.channels;
  const int64_t channel = (block_down() * width + threadIdx.x % width) * N;
  float sums[N] = {};
  if (channel < op.channels) {
    for (int64_t pixel = threadIdx.x / width; pixel < op.pixels; pixel += kTileThreads / width) {
      float values[N];
      load(image + pixel * op.channels + channel, values);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += values[i];
    }
  }
  add_up_tile(sums, width);
  if (channel >= op.channels || threadIdx.x >= static_cast<unsigned>(width)) return;
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] /= static_cast<float>(op.pixels);
  store(sums, op.y + blockIdx.x * op.channels + channel);
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

// Runs f for the pixels of x or of y. vectors: whether all arrays can be read in vectors.
template <typename T, typename F>
void for_each_pixel_of(
    const graph::PoolShape& s, int64_t pixels, bool vectors, F f, Stream stream) {
  LOCKSTEP_REQUIRE(s.pixels_in() < kMaxPixels && s.pixels_out() < kMaxPixels);
  for_each_pixel<kVectorWidth<T>>(pixels, s.channels, vectors, f, stream);
}

template <typename T>
bool are_vectors(const uint8_t* taps) {
  return reinterpret_cast<uintptr_t>(taps) % kVectorWidth<T> == 0;
}

void run_max_pool(const graph::OpCall& call) {
  by_type<graph::PoolForward>(call, [&]<typename T>(const auto& op) {
    const graph::PoolShape& s = op.shape;
    const bool vectors = is_vectorizable<T>(s.channels, {op.x, op.y}) && are_vectors<T>(op.place);
    const MaxForward<T> forward{Windows(s), op.x, op.y, op.place};
    for_each_pixel_of<T>(s, s.pixels_out(), vectors, forward, stream_of(call));
  });
}

void run_max_pool_backward(const graph::OpCall& call) {
  by_type<graph::PoolBackward>(call, [&]<typename T>(const auto& op) {
    const graph::PoolShape& s = op.shape;
    const bool vectors =
        is_vectorizable<T>(s.channels, {op.d_y, op.d_x}) && are_vectors<T>(op.place);
    const MaxBackward<T> backward{Windows(s), op.d_y, op.place, op.d_x};
    for_each_pixel_of<T>(s, s.pixels_in(), vectors, backward, stream_of(call));
  });
}

void run_avg_pool(const graph::OpCall& call) {
  by_type<graph::PoolForward>(call, [&]<typename T>(const auto& op) {
    const graph::PoolShape& s = op.shape;
    const bool vectors = is_vectorizable<T>(s.channels, {op.x, op.y});
    const AvgForward<T> forward{Windows(s), op.x, op.y};
    for_each_pixel_of<T>(s, s.pixels_out(), vectors, forward, stream_of(call));
  });
}

void run_avg_pool_backward(const graph::OpCall& call) {
  by_type<graph::PoolBackward>(call, [&]<typename T>(const auto& op) {
    const graph::PoolShape& s = op.shape;
    const bool vectors = is_vectorizable<T>(s.channels, {op.d_y, op.d_x});
    const AvgBackward<T> backward{Windows(s), op.d_y, op.d_x};
    for_each_pixel_of<T>(s, s.pixels_in(), vectors, backward, stream_of(call));
  });
}

void run_global_avg_pool(const graph::OpCall& call) {
  by_type<graph::GlobalAvgPoolForward>(call, [&]<typename T>(const auto& op) {
    with_vectors<T>(is_vectorizable<T>(op.channels, {op.x, op.y}), [&](auto n) {
      constexpr int N = decltype(n)::value;
      const RowTiles tiles = row_tiles(op.images, op.channels, N, 1);
      launch(
          {tall_grid(blocks_for(op.images, 1), tiles.channel_tiles), kTileThreads, stream_of(call)},
          global_avg_kernel<T, N>,
          op,
          tiles.width);
    });
  });
}

void run_global_avg_pool_backward(const graph::OpCall& call) {
  by_type<graph::GlobalAvgPoolBackward>(call, [&]<typename T>(const auto& op) {
    const int64_t pixels = op.images * op.pixels;
    LOCKSTEP_REQUIRE(pixels < kMaxPixels);
    const bool vectors = is_vectorizable<T>(op.channels, {op.d_y, op.d_x});
    const GlobalAvgBackward<T> backward{
        op.d_y, op.d_x, op.channels, static_cast<uint32_t>(op.pixels)};
    for_each_pixel<kVectorWidth<T>>(pixels, op.channels, vectors, backward, stream_of(call));
  });
}

template <auto run>
constexpr exec::Implementation native(graph::OpKind kind) {
  return exec::row<run, exec::no_workspace, supports_pixels>(kind, "native");
}

constexpr exec::Implementation kRows[] = {
    native<run_max_pool>(graph::OpKind::kMaxPool),
    native<run_max_pool_backward>(graph::OpKind::kMaxPoolBackward),
    native<run_avg_pool>(graph::OpKind::kAvgPool),
    native<run_avg_pool_backward>(graph::OpKind::kAvgPoolBackward),
    native<run_global_avg_pool>(graph::OpKind::kGlobalAvgPool),
    native<run_global_avg_pool_backward>(graph::OpKind::kGlobalAvgPoolBackward),
};

}  // namespace

constinit const exec::Implementations kCudaPooling = kRows;

}  // namespace lockstep::cuda

#pragma once
// How kernels on matrices of rows by channels divide the work. `width` threads of a block are
// arranged along the channels, each with a vector of N of them, and the rest along the rows. So a
// warp reads contiguous memory even if there are few channels. Only kernel files include this.

#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

inline dim3 grid_of(const RowTiles& tiles) {
  return tall_grid(tiles.row_blocks, tiles.channel_tiles);
}

// What one thread of a tile handles: rows begin, begin + step, ... below `end` of the N channels
// from `channel` on, which may be past the last.
template <int N>
struct TilePosition {
  // block: index of the block of rows.
  __device__ __forceinline__
  TilePosition(int width, int64_t block_rows, int64_t rows, int64_t block = blockIdx.x)
      : channel((block_down() * width + threadIdx.x % width) * N),
        first(block * block_rows),
        begin(first + threadIdx.x / width),
        end(first + block_rows < rows ? first + block_rows : rows),
        step(kTileThreads / width) {}
  int64_t channel;
  int64_t first;  // first row of the block
  int64_t begin, end;
  int step;
};

// The N elements from here on, at most 16 bytes, as they are stored.
template <int N, typename T>
__device__ __forceinline__ Vector<T, N> vector_at(const T* from) {
  static_assert(sizeof(Vector<T, N>) <= 16);
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

// Calls f(row, count) for rows from `row` on, position.step apart: `kRows` at a time, and the last
// ones one at a time. count is a constant. What f reads before it writes is in flight together.
template <int kRows, int N, typename F>
__device__ __forceinline__ void for_rows(const TilePosition<N>& position, F f) {
  int64_t row = position.begin;
  for (; row + (kRows - 1) * position.step < position.end; row += kRows * position.step)
    f(row, std::integral_constant<int, kRows>());
  for (; row < position.end; row += position.step) f(row, std::integral_constant<int, 1>());
}

// Adds up `sums` over the threads with the same channels, in a fixed order: within warps, then over
// the warps. The first `width` threads of the block get the result. All threads of the block must
// call it.
template <int N>
__device__ __forceinline__ void add_up_tile(float (&sums)[N], int width) {
  constexpr int kWarps = kTileThreads / kWarp;
  __shared__ float parts[kWarps][kWarp * N];
  for (int distance = kWarp / 2; distance >= width; distance /= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], distance);
  }
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  __syncthreads();  // the parts of the previous call may still be read
  if (lane < width) {
    for (int i = 0; i < N; ++i) parts[warp][i * kWarp + lane] = sums[i];
  }
  __syncthreads();
  if (warp > 0 || lane >= width) return;
  for (int other = 1; other < kWarps; ++other) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += parts[other][i * kWarp + lane];
  }
}

// For a tile of x, whose rows are `channels` apart: each channel's mean, and the sum of squared
// distances from it, (channels) each. Sums the differences from the tile's first row, so that
// nothing cancels, however far the values are from zero. All threads of the block must call it.
template <typename T, int N>
__device__ __forceinline__ void tile_moments(const TilePosition<N>& position,
                                             const T* x,
                                             int64_t channels,
                                             int width,
                                             float* means,
                                             float* distances) {
  const bool inside = position.channel < channels;
  float shift[N] = {}, sums[N] = {}, squares[N] = {};
  if (inside) {
    load(x + position.first * channels + position.channel, shift);
    for_rows<4>(position, [&](int64_t row, auto count) {
      Vector<T, N> vectors[count];
#pragma unroll
      for (int k = 0; k < count; ++k)
        vectors[k] = vector_at<N>(x + (row + k * position.step) * channels + position.channel);
#pragma unroll
      for (int k = 0; k < count; ++k) {
        float values[N];
        widen(vectors[k], values);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          values[i] -= shift[i];
          sums[i] += values[i];
          squares[i] = fmaf(values[i], values[i], squares[i]);
        }
      }
    });
  }
  add_up_tile(sums, width);
  add_up_tile(squares, width);
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
  const auto count = static_cast<float>(position.end - position.first);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float mean = sums[i] / count;
    squares[i] = fmaxf(fmaf(-mean, sums[i], squares[i]), 0.0f);
    sums[i] = shift[i] + mean;
  }
  store(sums, means + position.channel);
  store(squares, distances + position.channel);
}

}  // namespace lockstep::cuda

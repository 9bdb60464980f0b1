#pragma once
// How kernels on matrices of rows by channels share out the work: a block's threads stand `width`
// side by side along the channels, each with a vector of N of them, and the rest below one another,
// so that a warp reads contiguous memory however few the channels are. Only kernel files include
// this.

#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

inline dim3 grid_of(const RowTiles& tiles) {
  return tall_grid(tiles.row_blocks, tiles.channel_tiles);
}

// What one thread of a tile works on: rows begin, begin + step, ... below `end` of the N channels
// from `channel`, which may lie beyond the last.
template <int N>
struct TilePlace {
  // block: of the rows.
  __device__ __forceinline__
  TilePlace(int width, int64_t block_rows, int64_t rows, int64_t block = blockIdx.x)
      : channel((block_down() * width + threadIdx.x % width) * N),
        first(block * block_rows),
        begin(first + threadIdx.x / width),
        end(first + block_rows < rows ? first + block_rows : rows),
        step(kTileThreads / width) {}
  int64_t channel;
  int64_t first;  // row of the block
  int64_t begin, end;
  int step;
};

// Adds up `sums` over the threads that stand below one another, in a fixed order: within warps,
// then over the warps. The topmost `width` threads of the block get the result. All threads of the
// block must call it.
template <int N>
__device__ __forceinline__ void add_up_tile(float (&sums)[N], int width) {
  constexpr int kWarps = kTileThreads / kWarp;
  __shared__ float parts[kWarps][kWarp * N];
  for (int distance = kWarp / 2; distance >= width; distance /= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], distance);
  }
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  __syncthreads();  // the parts of a call before may still be read
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

// Of a tile of x, whose rows are `channels` apart: each channel's mean, and the sum of squared
// distances from it, (channels) each. What is added up are distances from the tile's first row, so that
// nothing cancels however far the values lie from zero. All threads of the block must call it.
template <typename T, int N>
__device__ __forceinline__ void tile_moments(const TilePlace<N>& place,
                                             const T* x,
                                             int64_t channels,
                                             int width,
                                             float* means,
                                             float* distances) {
  const bool inside = place.channel < channels;
  float shift[N] = {}, sums[N] = {}, squares[N] = {};
  if (inside) {
    load(x + place.first * channels + place.channel, shift);
    for (int64_t row = place.begin; row < place.end; row += place.step) {
      float values[N];
      load(x + row * channels + place.channel, values);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        values[i] -= shift[i];
        sums[i] += values[i];
        squares[i] = fmaf(values[i], values[i], squares[i]);
      }
    }
  }
  add_up_tile(sums, width);
  add_up_tile(squares, width);
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
  const auto count = static_cast<float>(place.end - place.first);
  for (int i = 0; i < N; ++i) {
    const float mean = sums[i] / count;
    means[place.channel + i] = shift[i] + mean;
    distances[place.channel + i] = fmaxf(fmaf(-mean, sums[i], squares[i]), 0.0f);
  }
}

}  // namespace lockstep::cuda

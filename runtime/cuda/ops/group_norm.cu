// A tile (some pixels of a sample, some channels) computes two sums for each channel. A block for
// each group then combines the sums of its channels. The grid's first dimension numbers the tiles
// of all samples.
#include "runtime/graph/ops/group_norm.h"

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_tiles.h"

namespace lockstep::cuda {
namespace {

constexpr int kGroupThreads = 128;

// Two floats for each channel of each block of rows of each sample: (N, blocks, 2, C).
struct TileSums {
  float* sums;
  int64_t blocks, channels;
  __device__ float* of(int64_t sample, int64_t block) const {
    return sums + (sample * blocks + block) * 2 * channels;
  }
};

// The sample of a block and the position within it; blocks of the same sample are consecutive.
template <int N>
struct SamplePosition : TilePosition<N> {
  __device__ __forceinline__ SamplePosition(const graph::GroupNormShape& s,
                                            int width,
                                            int64_t block_rows)
      : SamplePosition(s, width, block_rows, gridDim.x / static_cast<unsigned>(s.samples)) {}
  int64_t sample, block;

 private:
  __device__ __forceinline__
  SamplePosition(const graph::GroupNormShape& s, int width, int64_t block_rows, unsigned blocks)
      : TilePosition<N>(width, block_rows, s.pixels, blockIdx.x % blocks),
        sample(blockIdx.x / blocks),
        block(blockIdx.x % blocks) {}
};

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads) moments_kernel(
    graph::GroupNormShape s, const T* x, int width, int64_t block_rows, TileSums tiles) {
  const SamplePosition<N> position(s, width, block_rows);
  float* const means = tiles.of(position.sample, position.block);
  tile_moments(position,
               x + position.sample * s.pixels * s.channels,
               s.channels,
               width,
               means,
               means + s.channels);
}

// Blocks (G, N): mean and rstd of a group.
__global__ void __launch_bounds__(kGroupThreads) statistics_kernel(graph::GroupNormShape s,
                                                                   float epsilon,
                                                                   int64_t block_rows,
                                                                   TileSums tiles,
                                                                   float* mean,
                                                                   float* rstd) {
  const int64_t each = s.group_channels(), first = blockIdx.x * each, sample = block_down();
  if (sample >= s.samples) return;
  const int64_t entries = tiles.blocks * each;
  const double count = static_cast<double>(s.pixels * each);
  const auto rows_of = [&](int64_t block) {
    const int64_t left = s.pixels - block * block_rows;
    return static_cast<double>(left < block_rows ? left : block_rows);
  };
  double sum = 0;
  for (int64_t i = threadIdx.x; i < entries; i += kGroupThreads) {
    const int64_t block = i / each;
    sum += rows_of(block) * tiles.of(sample, block)[first + i % each];
  }
  const double centre = block_reduce<Sum, kGroupThreads>(sum) / count;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < entries; i += kGroupThreads) {
    const int64_t block = i / each;
    const float* const at = tiles.of(sample, block) + first + i % each;
    const double distance = at[0] - centre;
    squares += at[s.channels] + rows_of(block) * distance * distance;
  }
  const double variance = block_reduce<Sum, kGroupThreads>(squares) / count;
  if (threadIdx.x > 0) return;
  mean[sample * s.groups + blockIdx.x] = static_cast<float>(centre);
  rstd[sample * s.groups + blockIdx.x] = static_cast<float>(1 / sqrt(variance + epsilon));
}

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(graph::GroupNormForward<T> op, int width, int64_t block_rows) {
  const graph::GroupNormShape s = op.shape;
  const SamplePosition<N> position(s, width, block_rows);
  if (position.channel >= s.channels) return;
  const int64_t sample = position.sample, each = s.group_channels();
  float mean[N], scale[N], shift[N] = {};
  for (int i = 0; i < N; ++i) scale[i] = 1;
  if (op.gamma != nullptr) load(op.gamma + position.channel, scale);
  if (op.beta != nullptr) load(op.beta + position.channel, shift);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64_t group = sample * s.groups + (position.channel + i) / each;
    mean[i] = op.mean[group];
    scale[i] *= op.rstd[group];
  }
  for (int64_t row = position.begin; row < position.end; row += position.step) {
    const int64_t at = (sample * s.pixels + row) * s.channels + position.channel;
    float values[N];
    load(op.x + at, values);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = fmaf(values[i] - mean[i], scale[i], shift[i]);
    store(values, op.y + at);
  }
}

// Each tile's sums of d_y and of d_y (x - mean).
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads) gradient_sums_kernel(graph::GroupNormBackward<T> op,
                                                                     int width,
                                                                     int64_t block_rows,
                                                                     TileSums tiles) {
  const graph::GroupNormShape s = op.shape;
  const SamplePosition<N> position(s, width, block_rows);
  const bool inside = position.channel < s.channels;
  const int64_t sample = position.sample;
  float sums[N] = {}, products[N] = {};
  if (inside) {
    float mean[N];
    for (int i = 0; i < N; ++i)
      mean[i] = op.mean[sample * s.groups + (position.channel + i) / s.group_channels()];
    for (int64_t row = position.begin; row < position.end; row += position.step) {
      const int64_t at = (sample * s.pixels + row) * s.channels + position.channel;
      float d_y[N], x[N];
      load(op.d_y + at, d_y);
      load(op.x + at, x);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sums[i] += d_y[i];
        products[i] = fmaf(d_y[i], x[i] - mean[i], products[i]);
      }
    }
  }
  add_up_tile(sums, width);
  add_up_tile(products, width);
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
  float* const to = tiles.of(sample, position.block) + position.channel;
  for (int i = 0; i < N; ++i) {
    to[i] = sums[i];
    to[s.channels + i] = products[i];
  }
}

// The results of combining the tiles' sums.
struct GradientSums {
  float* d_gamma;      // (N, C): each sample's share
  float* d_beta;       // (N, C), after d_gamma
  float* mean_g;       // (N, G)
  float* mean_g_xhat;  // (N, G)
};

// Blocks (G, N).
template <typename T>
__global__ void __launch_bounds__(kGroupThreads)
    combine_gradients_kernel(graph::GroupNormBackward<T> op, TileSums tiles, GradientSums to) {
  const graph::GroupNormShape s = op.shape;
  const int64_t each = s.group_channels(), sample = block_down();
  if (sample >= s.samples) return;
  const int64_t group = sample * s.groups + blockIdx.x;
  const double rstd = op.rstd[group];
  double g = 0, g_xhat = 0;
  for (int64_t i = threadIdx.x; i < each; i += kGroupThreads) {
    const int64_t channel = blockIdx.x * each + i;
    double sum = 0, product = 0;
#pragma unroll 1  // more would spill registers on sm_90
    for (int64_t block = 0; block < tiles.blocks; ++block) {
      const float* const at = tiles.of(sample, block) + channel;
      sum += at[0];
      product += at[s.channels];
    }
    const double gamma = op.gamma == nullptr ? 1.0f : to_float(op.gamma[channel]);
    g += gamma * sum;
    g_xhat += gamma * rstd * product;
    to.d_gamma[sample * s.channels + channel] = static_cast<float>(rstd * product);
    to.d_beta[sample * s.channels + channel] = static_cast<float>(sum);
  }
  const double count = static_cast<double>(s.pixels * each);
  g = block_reduce<Sum, kGroupThreads>(g) / count;
  g_xhat = block_reduce<Sum, kGroupThreads>(g_xhat) / count;
  if (threadIdx.x > 0) return;
  to.mean_g[group] = static_cast<float>(g);
  to.mean_g_xhat[group] = static_cast<float>(g_xhat);
}

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads) backward_kernel(graph::GroupNormBackward<T> op,
                                                                int width,
                                                                int64_t block_rows,
                                                                GradientSums sums) {
  const graph::GroupNormShape s = op.shape;
  const SamplePosition<N> position(s, width, block_rows);
  if (position.channel >= s.channels) return;
  const int64_t sample = position.sample, each = s.group_channels();
  float mean[N], scale[N], slope[N], shift[N];
  for (int i = 0; i < N; ++i) scale[i] = 1;
  if (op.gamma != nullptr) load(op.gamma + position.channel, scale);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64_t group = sample * s.groups + (position.channel + i) / each;
    const float rstd = op.rstd[group];
    mean[i] = op.mean[group];
    scale[i] *= rstd;
    slope[i] = -rstd * rstd * sums.mean_g_xhat[group];
    shift[i] = -rstd * sums.mean_g[group];
  }
  for (int64_t row = position.begin; row < position.end; row += position.step) {
    const int64_t at = (sample * s.pixels + row) * s.channels + position.channel;
    float d_y[N], x[N];
    load(op.d_y + at, d_y);
    load(op.x + at, x);
#pragma unroll
    for (int i = 0; i < N; ++i)
      x[i] = fmaf(x[i] - mean[i], slope[i], fmaf(d_y[i], scale[i], shift[i]));
    store(x, op.d_x + at);
  }
}

Launch by_tiles(const graph::GroupNormShape& s, const RowTiles& tiles, Stream stream) {
  return {tall_grid(blocks_for(s.samples * tiles.row_blocks, 1), tiles.channel_tiles),
          kTileThreads,
          stream};
}

Launch by_groups(const graph::GroupNormShape& s, Stream stream) {
  return {tall_grid(blocks_for(s.groups, 1), s.samples), kGroupThreads, stream};
}

void run_forward(const graph::OpCall& call) {
  by_type<graph::GroupNormForward>(call, [&]<typename T>(const auto& op) {
    const graph::GroupNormShape& s = op.shape;
    const Stream stream = stream_of(call);
    with_vectors<T>(is_vectorizable<T>(s.channels, {op.x, op.gamma, op.beta, op.y}),
                    [&](auto count) {
                      constexpr int kCount = decltype(count)::value;
                      const RowTiles tiles = group_norm_tiles(s, kCount);
                      const TileSums sums{op.workspace, tiles.row_blocks, s.channels};
                      launch(by_tiles(s, tiles, stream),
                             moments_kernel<T, kCount>,
                             s,
                             op.x,
                             tiles.width,
                             tiles.block_rows,
                             sums);
                      launch(by_groups(s, stream),
                             statistics_kernel,
                             s,
                             op.epsilon,
                             tiles.block_rows,
                             sums,
                             op.mean,
                             op.rstd);
                      launch(by_tiles(s, tiles, stream),
                             forward_kernel<T, kCount>,
                             op,
                             tiles.width,
                             tiles.block_rows);
                    });
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::GroupNormBackward>(call, [&]<typename T>(const auto& op) {
    const graph::GroupNormShape& s = op.shape;
    const Stream stream = stream_of(call);
    float* const behind = op.workspace + group_norm_tile_sums(s);
    const GradientSums sums{behind,
                            behind + s.samples * s.channels,
                            behind + 2 * s.samples * s.channels,
                            behind + s.samples * (2 * s.channels + s.groups)};
    with_vectors<T>(is_vectorizable<T>(s.channels, {op.d_y, op.x, op.gamma, op.d_x}),
                    [&](auto count) {
                      constexpr int kCount = decltype(count)::value;
                      const RowTiles tiles = group_norm_tiles(s, kCount);
                      const TileSums of_tiles{op.workspace, tiles.row_blocks, s.channels};
                      launch(by_tiles(s, tiles, stream),
                             gradient_sums_kernel<T, kCount>,
                             op,
                             tiles.width,
                             tiles.block_rows,
                             of_tiles);
                      launch(by_groups(s, stream), combine_gradients_kernel<T>, op, of_tiles, sums);
                      launch(by_tiles(s, tiles, stream),
                             backward_kernel<T, kCount>,
                             op,
                             tiles.width,
                             tiles.block_rows,
                             sums);
                    });
    if (op.d_gamma != nullptr || op.d_beta != nullptr)
      sum_partials(sums.d_gamma, s.samples, s.channels, false, op.d_gamma, op.d_beta, stream);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, group_norm_workspace, group_norm_supports>(graph::OpKind::kGroupNorm,
                                                                      "native"),
    exec::row<run_backward, group_norm_backward_workspace, group_norm_supports>(
        graph::OpKind::kGroupNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaGroupNorm = kRows;

}  // namespace lockstep::cuda

#include "runtime/cuda/ops/batch_norm.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads) statistics_kernel(
    const T* x, int64_t rows, int64_t channels, int width, int64_t block_rows, float* partials) {
  float* const means = partials + static_cast<int64_t>(blockIdx.x) * channels;
  tile_moments(TilePosition<N>(width, block_rows, rows),
               x,
               channels,
               width,
               means,
               means + static_cast<int64_t>(gridDim.x) * channels);
}

// Mean and variance of all rows, from the blocks' means and sums of squared distances from them.
// With n rows in a block, and d its mean's distance from the first block's:
//   mean = first + sum(n d) / rows, variance = (sum(distances + n d^2) - sum(n d)^2 / rows) / rows
// In double, and the blocks' means are near each other, so that nothing cancels.
// Threads (kFewChannels, kGroups): x is the channel within the block's, y the group.
__global__ void __launch_bounds__(kFewChannels* kGroups) combine_kernel(const float* partials,
                                                                        int64_t blocks,
                                                                        int64_t rows,
                                                                        int64_t block_rows,
                                                                        int64_t channels,
                                                                        float* mean,
                                                                        float* variance) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFewChannels + threadIdx.x;
  double sums[2] = {};  // of n d; of distances + n d^2
  double first = 0;
  if (channel < channels) {
    first = partials[channel];
    for_blocks(partials, blocks, channels, channel, [&](int64_t block, float at, float distances) {
      const int64_t left = rows - block * block_rows;
      const auto n = static_cast<double>(left < block_rows ? left : block_rows);
      const double d = at - first;
      sums[0] += n * d;
      sums[1] += distances + n * d * d;
    });
  }
  add_up_groups(sums);
  if (threadIdx.y > 0 || channel >= channels) return;
  const auto all = static_cast<double>(rows);
  const double apart = sums[0] / all, distances = sums[1] - sums[0] * apart;
  mean[channel] = static_cast<float>(first + apart);
  variance[channel] = distances < 0 ? 0 : static_cast<float>(distances / all);
}

// With a mask, N is 8: a thread writes the byte of its elements.
template <typename T, typename S, int N>
__global__ void __launch_bounds__(kTileThreads) forward_kernel(graph::BatchNormForward<T> op,
                                                               const S* mean,
                                                               const S* variance,
                                                               int width,
                                                               int64_t block_rows) {
  const TilePosition<N> position(width, block_rows, op.rows);
  if (position.channel >= op.channels) return;
  const Channels<N> channels(op, mean, variance, position.channel);
  for_rows<2>(position, [&](int64_t row, auto count) {
    float values[count][N], delta[count][N] = {};
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const int64_t at = (row + k * position.step) * op.channels + position.channel;
      load(op.x + at, values[k]);
      if (op.delta != nullptr) load(op.delta + at, delta[k]);
    }
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const int64_t at = (row + k * position.step) * op.channels + position.channel;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float& y = values[k][i];
        y = channels.normalise(i, y) + delta[k][i];
        // Propagates NaN, as the CPU does.
        if (op.relu && y < 0) y = 0;
      }
      store(values[k], op.y + at);
      if constexpr (N == kMaskBits) {
        if (op.mask != nullptr) op.mask[at / kMaskBits] = bits_above_zero<T>(values[k]);
      }
    }
  });
}

// One thread per byte of the mask.
template <typename T>
__global__ void __launch_bounds__(kTileThreads) mask_kernel(const T* y, int64_t n, uint8_t* mask) {
  const int64_t byte = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (byte >= n / kMaskBits) return;
  float values[kMaskBits];
  for (int i = 0; i < kMaskBits; ++i) values[i] = to_float(y[byte * kMaskBits + i]);
  mask[byte] = bits_above_zero<T>(values);
}

// One thread per channel.
__global__ void __launch_bounds__(kTileThreads) combine_lanes_kernel(
    int64_t lanes, int64_t channels, const float* statistics, float* mean, float* variance) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (channel >= channels) return;
  double means = 0, distances = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) means += statistics[2 * lane * channels + channel];
  const double overall = means / static_cast<double>(lanes);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const float* const at = statistics + 2 * lane * channels + channel;
    const double apart = at[0] - overall;
    distances += at[channels] + apart * apart;
  }
  mean[channel] = static_cast<float>(overall);
  variance[channel] = static_cast<float>(distances / static_cast<double>(lanes));
}

// Mean and biased variance of each channel.
template <typename T>
void start_statistics(const T* x,
                      int64_t rows,
                      int64_t channels,
                      float* mean,
                      float* variance,
                      float* workspace,
                      const LaunchContext& context) {
  const Stream stream = context.stream;
  with_vectors<T>(is_vectorizable<T>(channels, {x}), [&](auto n) {
    constexpr int N = decltype(n)::value;
    const RowTiles tiles =
        batch_norm_tiles(rows, channels, N, context.multiprocessors, kBatchStatisticsBlocks);
    launch({grid_of(tiles), kTileThreads, stream},
           statistics_kernel<T, N>,
           x,
           rows,
           channels,
           tiles.width,
           tiles.block_rows,
           workspace);
    launch({blocks_for(channels, kFewChannels), {kFewChannels, kGroups, 1}, stream},
           combine_kernel,
           workspace,
           tiles.row_blocks,
           rows,
           tiles.block_rows,
           channels,
           mean,
           variance);
  });
}

template <typename T, typename S>
void start_forward(const graph::BatchNormForward<T>& op,
                   const S* mean,
                   const S* variance,
                   Stream stream) {
  const bool vectors = is_vectorizable<T>(op.channels, {op.x, op.delta, op.gamma, op.beta, op.y}) &&
                       all_aligned({mean, variance});
  const auto start = [&](auto n) {
    constexpr int N = decltype(n)::value;
    const RowTiles tiles = row_tiles(op.rows, op.channels, N, kWrittenRows);
    launch({grid_of(tiles), kTileThreads, stream},
           forward_kernel<T, S, N>,
           op,
           mean,
           variance,
           tiles.width,
           tiles.block_rows);
  };
  if (op.mask == nullptr) return with_vectors<T>(vectors, start);
  if (vectors) return start(std::integral_constant<int, kMaskBits>());
  with_vectors<T>(false, start);
  const int64_t n = op.rows * op.channels;
  launch({blocks_for(n / kMaskBits, kTileThreads), kTileThreads, stream},
         mask_kernel<T>,
         op.y,
         n,
         op.mask);
}

// In evaluation, the running statistics are read from the stored parameters. If these are 16-bit,
// they are rounded, by at most one part in 500 except beyond FP16's range.
void run_forward(const graph::OpCall& call) {
  by_type<graph::BatchNormForward>(call, [&]<typename T>(const auto& op) {
    const Stream stream = stream_of(call);
    if (!call.training()) return start_forward(op, op.running_mean, op.running_variance, stream);
    if (op.lane_statistics != nullptr) {
      launch({blocks_for(op.channels, kTileThreads), kTileThreads, stream},
             combine_lanes_kernel,
             op.lanes,
             op.channels,
             op.lane_statistics,
             op.mean,
             op.variance);
    } else {
      start_statistics(
          op.x, op.rows, op.channels, op.mean, op.variance, op.workspace, context_of(call));
    }
    start_forward(op, op.mean, op.variance, stream);
  });
}

void run_statistics(const graph::OpCall& call) {
  by_type<graph::BatchStatistics>(call, [&]<typename T>(const auto& op) {
    start_statistics(op.x,
                     op.rows,
                     op.channels,
                     op.statistics,
                     op.statistics + op.channels,
                     op.workspace,
                     context_of(call));
  });
}

struct Running {
  graph::BatchNormRunning<float> op;
  template <int N>
  __device__ void operator()(int64_t at, std::integral_constant<int, N>) const {
    const auto rows = static_cast<float>(op.rows);
    const float factor = op.rows > 1 ? rows / (rows - 1) : 1.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      op.d_running_mean[at + i] = op.mean[at + i];
      op.d_running_variance[at + i] = op.variance[at + i] * factor;
    }
  }
};

void run_running(const graph::OpCall& call) {
  const graph::BatchNormRunning<float> op{call};
  for_each_flat<1>(op.channels, false, Running{op}, stream_of(call));
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, batch_statistics_workspace>(graph::OpKind::kBatchNorm, "native"),
    exec::row<run_batch_norm_backward, batch_norm_sums_workspace>(graph::OpKind::kBatchNormBackward,
                                                                  "native"),
    exec::row<run_statistics, batch_statistics_workspace>(graph::OpKind::kBatchStatistics,
                                                          "native"),
    exec::row<run_running>(graph::OpKind::kBatchNormRunning, "native"),
    exec::row<run_batch_norm_sums, batch_norm_sums_workspace>(graph::OpKind::kBatchNormSums,
                                                              "native"),
    exec::row<run_batch_norm_input_gradient, batch_norm_input_gradient_workspace>(
        graph::OpKind::kBatchNormInputGradient, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaBatchNorm = kRows;

}  // namespace lockstep::cuda

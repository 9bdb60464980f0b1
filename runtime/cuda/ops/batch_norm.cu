// Sums over rows go in three steps whose order the shape fixes: a thread adds up rows of its block,
// the block its threads, and a last small kernel the blocks. Between them nothing is atomic.
#include "runtime/cuda/ops/batch_norm.h"

#include <algorithm>

#include "runtime/cuda/row_tiles.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kSummedRows = 8;  // of a thread, at least
constexpr int64_t kMostBlocks = 1024;
constexpr int64_t kWrittenRows = 16;
constexpr int kGroups = 16;  // of blocks that the last kernel combines side by side

RowTiles summing_tiles(int64_t rows, int64_t channels, int n) {
  return row_tiles(rows, channels, n, kSummedRows, kMostBlocks);
}

// Each block's mean and sum of squared distances from it. What is added up are distances from the
// block's first row, so that nothing cancels however far the values lie from zero.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads) statistics_kernel(
    const T* x, int64_t rows, int64_t channels, int width, int64_t block_rows, float* partials) {
  const TilePlace<N> place(width, block_rows, rows);
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
  float* const means = partials + static_cast<int64_t>(blockIdx.x) * channels + place.channel;
  float* const distances = means + static_cast<int64_t>(gridDim.x) * channels;
  for (int i = 0; i < N; ++i) {
    const float mean = sums[i] / count;
    means[i] = shift[i] + mean;
    distances[i] = fmaxf(fmaf(-mean, sums[i], squares[i]), 0.0f);
  }
}

// Count, mean and sum of squared distances of some rows; Chan et al. 1979.
struct Moments {
  double count, mean, distances;
  __device__ void take(const Moments& other) {
    const double all = count + other.count;
    if (other.count == 0) return;
    const double apart = other.mean - mean;
    mean += apart * (other.count / all);
    distances += other.distances + apart * apart * (count * (other.count / all));
    count = all;
  }
};

// Threads (32, kGroups): x is the channel within the block's 32, y the group.
__global__ void __launch_bounds__(kWarp* kGroups) combine_kernel(const float* partials,
                                                                 int64_t blocks,
                                                                 int64_t rows,
                                                                 int64_t block_rows,
                                                                 int64_t channels,
                                                                 float* mean,
                                                                 float* variance) {
  __shared__ double parts[kGroups][3][kWarp];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  Moments moments{0, 0, 0};
  if (channel < channels) {
    for (int64_t block = threadIdx.y; block < blocks; block += kGroups) {
      const int64_t left = rows - block * block_rows;
      const float* const at = partials + block * channels + channel;
      moments.take({static_cast<double>(left < block_rows ? left : block_rows),
                    at[0],
                    at[blocks * channels]});
    }
  }
  parts[threadIdx.y][0][threadIdx.x] = moments.count;
  parts[threadIdx.y][1][threadIdx.x] = moments.mean;
  parts[threadIdx.y][2][threadIdx.x] = moments.distances;
  __syncthreads();
  if (threadIdx.y > 0 || channel >= channels) return;
  for (int group = 1; group < kGroups; ++group)
    moments.take(
        {parts[group][0][threadIdx.x], parts[group][1][threadIdx.x], parts[group][2][threadIdx.x]});
  mean[channel] = static_cast<float>(moments.mean);
  variance[channel] = static_cast<float>(moments.distances / static_cast<double>(rows));
}

// Statistics in float. Those stored in FP16 are running ones, rounded to infinity where a variance
// is beyond the type's range: they are read as its largest number, which keeps y a function of x.
template <typename S, int N>
__device__ __forceinline__ void load_statistics(const S* from, float (&to)[N]) {
  load(from, to);
  if constexpr (std::is_same_v<S, Float16>) {
    constexpr float kLargest = 65504;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (to[i] > kLargest) to[i] = kLargest;  // NaN passes
      if (to[i] < -kLargest) to[i] = -kLargest;
    }
  }
}

// What is known of N channels once the statistics are.
template <int N>
struct Channels {
  float mean[N], rstd[N], scale[N], beta[N];  // scale: gamma rstd

  template <typename Op>
  __device__ __forceinline__ Channels(const Op& op, int64_t channel) {
    load_statistics(op.mean + channel, mean);
    load_statistics(op.variance + channel, rstd);
    load(op.gamma + channel, scale);
    load(op.beta + channel, beta);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      rstd[i] = rsqrtf(rstd[i] + op.epsilon);
      scale[i] *= rstd[i];
    }
  }
  // Forward and backward must agree to the bit: where it is above zero ReLU passes.
  __device__ __forceinline__ float normalise(int i, float x) const {
    return fmaf(x - mean[i], scale[i], beta[i]);
  }
};

template <typename T, typename S, int N>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(BatchNormForward<T, S> op, int width, int64_t block_rows) {
  const TilePlace<N> place(width, block_rows, op.rows);
  if (place.channel >= op.channels) return;
  const Channels<N> channels(op, place.channel);
  for (int64_t row = place.begin; row < place.end; row += place.step) {
    const int64_t at = row * op.channels + place.channel;
    float values[N], delta[N] = {};
    load(op.x + at, values);
    if (op.delta != nullptr) load(op.delta + at, delta);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = channels.normalise(i, values[i]) + delta[i];
      // NaN passes, as it does on the CPU.
      if (op.relu && values[i] < 0) values[i] = 0;
    }
    store(values, op.y + at);
  }
}

// x, and the gradient that the activation passed.
template <int N, typename T>
__device__ __forceinline__ void load_gradient(const BatchNormBackward<T>& op,
                                              const Channels<N>& channels,
                                              int64_t at,
                                              float (&x)[N],
                                              float (&g)[N]) {
  load(op.x + at, x);
  load(op.d_y + at, g);
  if (!op.relu) return;
  float y[N];
  if (op.y != nullptr) {
    load(op.y + at, y);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = channels.normalise(i, x[i]);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) g[i] = y[i] > 0 ? g[i] : 0;
}

// Each block's sums of g and of g (x - mean); writes d_delta.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    gradient_sums_kernel(BatchNormBackward<T> op, int width, int64_t block_rows) {
  const TilePlace<N> place(width, block_rows, op.rows);
  const bool inside = place.channel < op.channels;
  float sums[N] = {}, products[N] = {};
  if (inside) {
    const Channels<N> channels(op, place.channel);
    for (int64_t row = place.begin; row < place.end; row += place.step) {
      float x[N], g[N];
      const int64_t at = row * op.channels + place.channel;
      load_gradient(op, channels, at, x, g);
      if (op.d_delta != nullptr) store(g, op.d_delta + at);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sums[i] += g[i];
        products[i] = fmaf(g[i], x[i] - channels.mean[i], products[i]);
      }
    }
  }
  add_up_tile(sums, width);
  add_up_tile(products, width);
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
  float* const to = op.workspace + static_cast<int64_t>(blockIdx.x) * op.channels + place.channel;
  for (int i = 0; i < N; ++i) {
    to[i] = sums[i];
    to[static_cast<int64_t>(gridDim.x) * op.channels + i] = products[i];
  }
}

// Threads as in combine_kernel.
template <typename T>
__global__ void __launch_bounds__(kWarp* kGroups)
    finish_sums_kernel(BatchNormBackward<T> op, int64_t blocks, int64_t all_rows) {
  __shared__ float parts[kGroups][2][kWarp];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0, products = 0;
  if (channel < op.channels) {
    for (int64_t block = threadIdx.y; block < blocks; block += kGroups) {
      const float* const at = op.workspace + block * op.channels + channel;
      sum += at[0];
      products += at[blocks * op.channels];
    }
  }
  parts[threadIdx.y][0][threadIdx.x] = sum;
  parts[threadIdx.y][1][threadIdx.x] = products;
  __syncthreads();
  if (threadIdx.y > 0 || channel >= op.channels) return;
  for (int group = 1; group < kGroups; ++group) {
    sum += parts[group][0][threadIdx.x];
    products += parts[group][1][threadIdx.x];
  }
  const float variance = op.variance[channel];
  op.d_beta[channel] = sum;
  op.d_gamma[channel] = products * rsqrtf(variance + op.epsilon);
  op.batch_mean[channel] = op.mean[channel];
  const auto rows = static_cast<float>(all_rows);
  op.unbiased_variance[channel] = all_rows > 1 ? variance * (rows / (rows - 1)) : variance;
}

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    backward_kernel(BatchNormBackward<T> op, int width, int64_t block_rows, int64_t all_rows) {
  const TilePlace<N> place(width, block_rows, op.rows);
  if (place.channel >= op.channels) return;
  const Channels<N> channels(op, place.channel);
  const float share = 1 / static_cast<float>(all_rows);
  float slope[N], mean_g[N];  // d_x = scale (g - mean_g - (x - mean) slope)
  load(op.d_gamma + place.channel, slope);
  load(op.d_beta + place.channel, mean_g);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    slope[i] *= channels.rstd[i] * share;
    mean_g[i] *= share;
  }
  for (int64_t row = place.begin; row < place.end; row += place.step) {
    const int64_t at = row * op.channels + place.channel;
    float x[N], g[N];
    load_gradient(op, channels, at, x, g);
#pragma unroll
    for (int i = 0; i < N; ++i)
      x[i] = channels.scale[i] * (g[i] - fmaf(x[i] - channels.mean[i], slope[i], mean_g[i]));
    if (op.d_delta != nullptr) store(g, op.d_delta + at);
    store(x, op.d_x + at);
  }
}

template <typename T, int N>
void start_statistics(const T* x,
                      int64_t rows,
                      int64_t channels,
                      float* mean,
                      float* variance,
                      float* workspace,
                      Stream stream) {
  const RowTiles tiles = summing_tiles(rows, channels, N);
  launch({tiles.grid(), {kTileThreads, 1, 1}, stream},
         statistics_kernel<T, N>,
         x,
         rows,
         channels,
         tiles.width,
         tiles.block_rows,
         workspace);
  launch({{blocks_for(channels, kWarp), 1, 1}, {kWarp, kGroups, 1}, stream},
         combine_kernel,
         workspace,
         tiles.row_blocks,
         rows,
         tiles.block_rows,
         channels,
         mean,
         variance);
}

template <typename T, typename S, int N>
void start_forward(const BatchNormForward<T, S>& op, Stream stream) {
  const RowTiles tiles = row_tiles(op.rows, op.channels, N, kWrittenRows);
  launch({tiles.grid(), {kTileThreads, 1, 1}, stream},
         forward_kernel<T, S, N>,
         op,
         tiles.width,
         tiles.block_rows);
}

template <typename T, int N>
void start_backward_sums(const BatchNormBackward<T>& op, int64_t lanes, Stream stream) {
  const RowTiles summing = summing_tiles(op.rows, op.channels, N);
  launch({summing.grid(), {kTileThreads, 1, 1}, stream},
         gradient_sums_kernel<T, N>,
         op,
         summing.width,
         summing.block_rows);
  launch({{blocks_for(op.channels, kWarp), 1, 1}, {kWarp, kGroups, 1}, stream},
         finish_sums_kernel<T>,
         op,
         summing.row_blocks,
         op.rows * lanes);
}

template <typename T, int N>
void start_backward_input(const BatchNormBackward<T>& op, int64_t lanes, Stream stream) {
  const RowTiles writing = row_tiles(op.rows, op.channels, N, kWrittenRows);
  launch({writing.grid(), {kTileThreads, 1, 1}, stream},
         backward_kernel<T, N>,
         op,
         writing.width,
         writing.block_rows,
         op.rows * lanes);
}

// One thread a channel.
__global__ void __launch_bounds__(kTileThreads) combine_lanes_kernel(
    int64_t lanes, int64_t channels, const float* statistics, float* mean, float* variance) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (channel >= channels) return;
  double means = 0, distances = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) means += statistics[2 * lane * channels + channel];
  const double whole = means / static_cast<double>(lanes);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const float* const at = statistics + 2 * lane * channels + channel;
    const double apart = at[0] - whole;
    distances += at[channels] + apart * apart;
  }
  mean[channel] = static_cast<float>(whole);
  variance[channel] = static_cast<float>(distances / static_cast<double>(lanes));
}

__global__ void __launch_bounds__(kTileThreads)
    sum_lanes_kernel(int64_t lanes, int64_t n, const float* parts, float* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) sum += parts[lane * n + i];
  out[i] = sum;
}

// Whether (channels) arrays of another type can be read by vectors of as many elements.
bool all_aligned(std::initializer_list<const void*> arrays) {
  return std::all_of(arrays.begin(), arrays.end(), [](const void* array) {
    return reinterpret_cast<uintptr_t>(array) % 16 == 0;
  });
}

}  // namespace

size_t batch_norm_workspace_bytes(int64_t rows, int64_t channels) {
  size_t blocks = 0;
  for (const int n : {1, 4, 8})
    blocks = std::max<size_t>(blocks, summing_tiles(rows, channels, n).row_blocks);
  return 2 * blocks * static_cast<size_t>(channels) * sizeof(float);
}

template <typename T>
void batch_norm_statistics(const T* x,
                           int64_t rows,
                           int64_t channels,
                           float* mean,
                           float* variance,
                           float* workspace,
                           Stream stream) {
  if (is_vectorizable<T>(channels, {x})) {
    start_statistics<T, kVectorWidth<T>>(x, rows, channels, mean, variance, workspace, stream);
  } else {
    start_statistics<T, 1>(x, rows, channels, mean, variance, workspace, stream);
  }
}

template <typename T, typename S>
void batch_norm_forward(const BatchNormForward<T, S>& op, Stream stream) {
  if (is_vectorizable<T>(op.channels, {op.x, op.delta, op.gamma, op.beta, op.y}) &&
      all_aligned({op.mean, op.variance})) {
    start_forward<T, S, kVectorWidth<T>>(op, stream);
  } else {
    start_forward<T, S, 1>(op, stream);
  }
}

namespace {

template <typename T>
bool backward_vectors(const BatchNormBackward<T>& op) {
  return is_vectorizable<T>(op.channels,
                            {op.d_y, op.y, op.x, op.gamma, op.beta, op.d_x, op.d_delta}) &&
         all_aligned({op.mean, op.variance, op.d_gamma, op.d_beta});
}

}  // namespace

template <typename T>
void batch_norm_backward_sums(const BatchNormBackward<T>& op, int64_t lanes, Stream stream) {
  if (backward_vectors(op)) {
    start_backward_sums<T, kVectorWidth<T>>(op, lanes, stream);
  } else {
    start_backward_sums<T, 1>(op, lanes, stream);
  }
}

template <typename T>
void batch_norm_backward_input(const BatchNormBackward<T>& op, int64_t lanes, Stream stream) {
  if (backward_vectors(op)) {
    start_backward_input<T, kVectorWidth<T>>(op, lanes, stream);
  } else {
    start_backward_input<T, 1>(op, lanes, stream);
  }
}

template <typename T>
void batch_norm_backward(const BatchNormBackward<T>& op, Stream stream) {
  BatchNormBackward<T> sums = op;
  sums.d_delta = nullptr;  // written by the other half, which reads all that it may lie upon
  batch_norm_backward_sums(sums, 1, stream);
  batch_norm_backward_input(op, 1, stream);
}

void combine_lane_statistics(int64_t lanes,
                             int64_t channels,
                             const float* statistics,
                             float* mean,
                             float* variance,
                             Stream stream) {
  launch({{blocks_for(channels, kTileThreads), 1, 1}, {kTileThreads, 1, 1}, stream},
         combine_lanes_kernel,
         lanes,
         channels,
         statistics,
         mean,
         variance);
}

void sum_lanes(int64_t lanes, int64_t n, const float* parts, float* out, Stream stream) {
  launch({{blocks_for(n, kTileThreads), 1, 1}, {kTileThreads, 1, 1}, stream},
         sum_lanes_kernel,
         lanes,
         n,
         parts,
         out);
}

template void batch_norm_statistics(const float*, int64_t, int64_t, float*, float*, float*, Stream);
template void batch_norm_statistics(
    const BFloat16*, int64_t, int64_t, float*, float*, float*, Stream);
template void batch_norm_statistics(
    const Float16*, int64_t, int64_t, float*, float*, float*, Stream);
template void batch_norm_forward(const BatchNormForward<float, float>&, Stream);
template void batch_norm_forward(const BatchNormForward<BFloat16, float>&, Stream);
template void batch_norm_forward(const BatchNormForward<Float16, float>&, Stream);
template void batch_norm_forward(const BatchNormForward<BFloat16, BFloat16>&, Stream);
template void batch_norm_forward(const BatchNormForward<Float16, Float16>&, Stream);
template void batch_norm_backward(const BatchNormBackward<float>&, Stream);
template void batch_norm_backward_sums(const BatchNormBackward<float>&, int64_t, Stream);
template void batch_norm_backward_input(const BatchNormBackward<float>&, int64_t, Stream);
template void batch_norm_backward(const BatchNormBackward<BFloat16>&, Stream);
template void batch_norm_backward_sums(const BatchNormBackward<BFloat16>&, int64_t, Stream);
template void batch_norm_backward_input(const BatchNormBackward<BFloat16>&, int64_t, Stream);
template void batch_norm_backward(const BatchNormBackward<Float16>&, Stream);
template void batch_norm_backward_sums(const BatchNormBackward<Float16>&, int64_t, Stream);
template void batch_norm_backward_input(const BatchNormBackward<Float16>&, int64_t, Stream);

}  // namespace lockstep::cuda

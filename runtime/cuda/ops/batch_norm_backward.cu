#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/batch_norm.h"

namespace lockstep::cuda {
namespace {

// Loads x and the gradient that the activation passed.
template <int N, typename T>
__device__ __forceinline__ void load_gradient(const graph::BatchNormGradientInputs<T>& in,
                                              const Channels<N>& channels,
                                              int64_t at,
                                              float (&x)[N],
                                              float (&g)[N]) {
  load(in.x + at, x);
  load(in.d_y + at, g);
  if (!in.relu) return;
  float y[N];
  if (in.y != nullptr) {
    load(in.y + at, y);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = channels.normalise(i, x[i]);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) g[i] = y[i] > 0 ? g[i] : 0;
}

// Each block's sums of g and of g (x - mean); writes d_delta unless it is null.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    gradient_sums_kernel(graph::BatchNormGradientInputs<T> in,
                         T* d_delta,
                         float* partials,
                         int width,
                         int64_t block_rows) {
  const TilePosition<N> position(width, block_rows, in.rows);
  const bool inside = position.channel < in.channels;
  float sums[N] = {}, products[N] = {};
  if (inside) {
    const Channels<N> channels(in, in.mean, in.variance, position.channel);
    for (int64_t row = position.begin; row < position.end; row += position.step) {
      float x[N], g[N];
      const int64_t at = row * in.channels + position.channel;
      load_gradient(in, channels, at, x, g);
      if (d_delta != nullptr) store(g, d_delta + at);
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
  float* const to = partials + static_cast<int64_t>(blockIdx.x) * in.channels + position.channel;
  for (int i = 0; i < N; ++i) {
    to[i] = sums[i];
    to[static_cast<int64_t>(gridDim.x) * in.channels + i] = products[i];
  }
}

// Threads (32, kGroups): x is the channel within the block's 32, y the group.
template <typename T>
__global__ void __launch_bounds__(kWarp* kGroups)
    finish_sums_kernel(graph::BatchNormGradientInputs<T> in,
                       const float* partials,
                       int64_t blocks,
                       int64_t all_rows,
                       graph::BatchNormParameterGradients<T> to) {
  __shared__ float parts[kGroups][2][kWarp];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0, products = 0;
  if (channel < in.channels) {
    for (int64_t block = threadIdx.y; block < blocks; block += kGroups) {
      const float* const at = partials + block * in.channels + channel;
      sum += at[0];
      products += at[blocks * in.channels];
    }
  }
  parts[threadIdx.y][0][threadIdx.x] = sum;
  parts[threadIdx.y][1][threadIdx.x] = products;
  __syncthreads();
  if (threadIdx.y > 0 || channel >= in.channels) return;
  for (int group = 1; group < kGroups; ++group) {
    sum += parts[group][0][threadIdx.x];
    products += parts[group][1][threadIdx.x];
  }
  const float variance = in.variance[channel];
  to.d_beta[channel] = sum;
  to.d_gamma[channel] = products * rsqrtf(variance + in.epsilon);
  to.d_running_mean[channel] = in.mean[channel];
  const auto rows = static_cast<float>(all_rows);
  to.d_running_variance[channel] = all_rows > 1 ? variance * (rows / (rows - 1)) : variance;
}

// Computes d_x, and d_delta unless it is null, from the sums over all rows of g and of g xhat.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    input_gradient_kernel(graph::BatchNormGradientInputs<T> in,
                          const float* sums,
                          const float* products,
                          int64_t all_rows,
                          T* d_delta,
                          T* d_x,
                          int width,
                          int64_t block_rows) {
  const TilePosition<N> position(width, block_rows, in.rows);
  if (position.channel >= in.channels) return;
  const Channels<N> channels(in, in.mean, in.variance, position.channel);
  const float share = 1 / static_cast<float>(all_rows);
  float slope[N], mean_g[N];  // d_x = scale (g - mean_g - (x - mean) slope)
  load(products + position.channel, slope);
  load(sums + position.channel, mean_g);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    slope[i] *= channels.rstd[i] * share;
    mean_g[i] *= share;
  }
  for (int64_t row = position.begin; row < position.end; row += position.step) {
    const int64_t at = row * in.channels + position.channel;
    float x[N], g[N];
    load_gradient(in, channels, at, x, g);
#pragma unroll
    for (int i = 0; i < N; ++i)
      x[i] = channels.scale[i] * (g[i] - fmaf(x[i] - channels.mean[i], slope[i], mean_g[i]));
    if (d_delta != nullptr) store(g, d_delta + at);
    store(x, d_x + at);
  }
}

// out (n) = the sums over the lanes, in order, of parts (lanes, n).
__global__ void __launch_bounds__(kTileThreads)
    sum_lanes_kernel(int64_t lanes, int64_t n, const float* parts, float* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) sum += parts[lane * n + i];
  out[i] = sum;
}

void sum_lanes(int64_t lanes, int64_t n, const float* parts, float* out, Stream stream) {
  launch(
      {blocks_for(n, kTileThreads), kTileThreads, stream}, sum_lanes_kernel, lanes, n, parts, out);
}

template <typename T>
bool takes_vectors(const graph::BatchNormGradientInputs<T>& in,
                   const T* d_x,
                   const T* d_delta,
                   const float* sums,
                   const float* products) {
  return is_vectorizable<T>(in.channels, {in.d_y, in.y, in.x, in.gamma, in.beta, d_x, d_delta}) &&
         all_aligned({in.mean, in.variance, sums, products});
}

// Writes the parameters' gradients and, unless it is null, d_delta. The rows are those of one of
// `lanes` lanes, while mean and variance are those of all lanes.
template <typename T, int N>
void start_sums(const graph::BatchNormGradientInputs<T>& in,
                int64_t lanes,
                T* d_delta,
                const graph::BatchNormParameterGradients<T>& to,
                float* workspace,
                Stream stream) {
  const RowTiles tiles = batch_norm_tiles(in.rows, in.channels, N);
  launch({grid_of(tiles), kTileThreads, stream},
         gradient_sums_kernel<T, N>,
         in,
         d_delta,
         workspace,
         tiles.width,
         tiles.block_rows);
  launch({blocks_for(in.channels, kWarp), {kWarp, kGroups, 1}, stream},
         finish_sums_kernel<T>,
         in,
         workspace,
         tiles.row_blocks,
         in.rows * lanes,
         to);
}

template <typename T, int N>
void start_input_gradient(const graph::BatchNormGradientInputs<T>& in,
                          int64_t lanes,
                          const float* sums,
                          const float* products,
                          T* d_delta,
                          T* d_x,
                          Stream stream) {
  const RowTiles tiles = row_tiles(in.rows, in.channels, N, kWrittenRows);
  launch({grid_of(tiles), kTileThreads, stream},
         input_gradient_kernel<T, N>,
         in,
         sums,
         products,
         in.rows * lanes,
         d_delta,
         d_x,
         tiles.width,
         tiles.block_rows);
}

}  // namespace

void run_batch_norm_backward(const graph::OpCall& call) {
  by_type<graph::BatchNormBackward>(call, [&]<typename T>(const auto& op) {
    const Stream stream = stream_of(call);
    float *const sums = op.parameters.d_beta, *const products = op.parameters.d_gamma;
    const bool vectors = takes_vectors(op.in, op.d_x, op.d_delta, sums, products);
    with_vectors<T>(vectors, [&](auto n) {
      constexpr int N = decltype(n)::value;
      // The second half writes d_delta, because it reads everything that d_delta may overwrite.
      start_sums<T, N>(op.in, 1, nullptr, op.parameters, op.workspace, stream);
      start_input_gradient<T, N>(op.in, 1, sums, products, op.d_delta, op.d_x, stream);
    });
  });
}

void run_batch_norm_sums(const graph::OpCall& call) {
  by_type<graph::BatchNormSums>(call, [&]<typename T>(const auto& op) {
    const Stream stream = stream_of(call);
    float *const sums = op.parameters.d_beta, *const products = op.parameters.d_gamma;
    const bool vectors = takes_vectors<T>(op.in, nullptr, op.d_delta, sums, products);
    with_vectors<T>(vectors, [&](auto n) {
      constexpr int N = decltype(n)::value;
      start_sums<T, N>(op.in, op.lanes, op.d_delta, op.parameters, op.workspace, stream);
    });
    sum_lanes(1, op.in.channels, sums, op.sums, stream);
    sum_lanes(1, op.in.channels, products, op.sums + op.in.channels, stream);
  });
}

void run_batch_norm_input_gradient(const graph::OpCall& call) {
  by_type<graph::BatchNormInputGradient>(call, [&]<typename T>(const auto& op) {
    const Stream stream = stream_of(call);
    float *const sums = op.workspace, *const products = sums + op.in.channels;
    sum_lanes(op.lanes, 2 * op.in.channels, op.all_sums, sums, stream);
    const bool vectors = takes_vectors<T>(op.in, op.d_x, nullptr, sums, products);
    with_vectors<T>(vectors, [&](auto n) {
      constexpr int N = decltype(n)::value;
      start_input_gradient<T, N>(op.in, op.lanes, sums, products, nullptr, op.d_x, stream);
    });
  });
}

}  // namespace lockstep::cuda

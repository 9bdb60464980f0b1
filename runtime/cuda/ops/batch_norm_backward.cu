#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/batch_norm.h"

namespace lockstep::cuda {
namespace {

constexpr int kRowsAtOnce = 2;  // of which a thread has what it reads in registers

// The sum as an add stores it.
template <typename T, int N>
__device__ __forceinline__ void add_rounded(const float (&more)[N], float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] += more[i];
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const uint32_t pair = round_pair<T>(to[i], to[i + 1]);
      to[i] = to_float(T{static_cast<uint16_t>(pair)});
      to[i + 1] = to_float(T{static_cast<uint16_t>(pair >> 16)});
    }
  } else {
    for (int i = 0; i < N; ++i) to[i] = to_float(round_to<T>(to[i]));
  }
}

// What a thread reads of one row, as it is stored. What is absent is not read.
template <typename T, int N>
struct GradientRow {
  Vector<T, N> x = {}, d_y = {}, d_y2 = {}, y = {};
  unsigned mask = 0;

  __device__ __forceinline__ void load(const graph::BatchNormGradientInputs<T>& in, int64_t at) {
    x = vector_at<N>(in.x + at);
    d_y = vector_at<N>(in.d_y + at);
    if (in.d_y2 != nullptr) d_y2 = vector_at<N>(in.d_y2 + at);
    if (in.y != nullptr) y = vector_at<N>(in.y + at);
    if (in.mask != nullptr) {
      const unsigned byte = in.mask[at / kMaskBits];
      mask = byte >> (at % kMaskBits);
    }
  }

  // x, and the gradient that the activation passed.
  __device__ __forceinline__ void values(const graph::BatchNormGradientInputs<T>& in,
                                         const Channels<N>& channels,
                                         float (&to_x)[N],
                                         float (&g)[N]) const {
    widen(x, to_x);
    widen(d_y, g);
    if (in.d_y2 != nullptr) {
      float more[N];
      widen(d_y2, more);
      add_rounded<T>(more, g);
    }
    if (!in.relu) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const bool passed = in.mask != nullptr ? (mask >> i & 1) != 0
                          : in.y != nullptr  ? to_float(y.at[i]) > 0
                                             : channels.normalise(i, to_x[i]) > 0;
      if (!passed) g[i] = 0;
    }
  }
};

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
    for_rows<kRowsAtOnce>(position, [&](int64_t row, auto count) {
      GradientRow<T, N> rows[count];
#pragma unroll
      for (int k = 0; k < count; ++k)
        rows[k].load(in, (row + k * position.step) * in.channels + position.channel);
#pragma unroll
      for (int k = 0; k < count; ++k) {
        const int64_t at = (row + k * position.step) * in.channels + position.channel;
        float x[N], g[N];
        rows[k].values(in, channels, x, g);
        if (d_delta != nullptr) store(g, d_delta + at);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sums[i] += g[i];
          products[i] = fmaf(g[i], x[i] - channels.mean[i], products[i]);
        }
      }
    });
  }
  add_up_tile(sums, width);
  add_up_tile(products, width);
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
  float* const to = partials + static_cast<int64_t>(blockIdx.x) * in.channels + position.channel;
  store(sums, to);
  store(products, to + static_cast<int64_t>(gridDim.x) * in.channels);
}

// Threads (kFewChannels, kGroups): x is the channel within the block's, y the group.
template <typename T>
__global__ void __launch_bounds__(kFewChannels* kGroups)
    finish_sums_kernel(graph::BatchNormGradientInputs<T> in,
                       const float* partials,
                       int64_t blocks,
                       int64_t all_rows,
                       graph::BatchNormParameterGradients<T> to) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFewChannels + threadIdx.x;
  float sums[2] = {};  // of g; of g (x - mean)
  if (channel < in.channels) {
    for_blocks(partials, blocks, in.channels, channel, [&](int64_t, float sum, float products) {
      sums[0] += sum;
      sums[1] += products;
    });
  }
  add_up_groups(sums);
  if (threadIdx.y > 0 || channel >= in.channels) return;
  const float variance = in.variance[channel];
  to.d_beta[channel] = sums[0];
  to.d_gamma[channel] = sums[1] * rsqrtf(variance + in.epsilon);
  to.d_running_mean[channel] = in.mean[channel];
  const auto rows = static_cast<float>(all_rows);
  to.d_running_variance[channel] = all_rows > 1 ? variance * (rows / (rows - 1)) : variance;
}

// Computes d_x from the sums over all rows of g and of g xhat.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    input_gradient_kernel(graph::BatchNormGradientInputs<T> in,
                          const float* sums,
                          const float* products,
                          int64_t all_rows,
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
  for_rows<kRowsAtOnce>(position, [&](int64_t row, auto count) {
    GradientRow<T, N> rows[count];
#pragma unroll
    for (int k = 0; k < count; ++k)
      rows[k].load(in, (row + k * position.step) * in.channels + position.channel);
#pragma unroll
    for (int k = 0; k < count; ++k) {
      float x[N], g[N];
      rows[k].values(in, channels, x, g);
#pragma unroll
      for (int i = 0; i < N; ++i)
        x[i] = channels.scale[i] * (g[i] - fmaf(x[i] - channels.mean[i], slope[i], mean_g[i]));
      store(x, d_x + (row + k * position.step) * in.channels + position.channel);
    }
  });
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
  return is_vectorizable<T>(in.channels,
                            {in.d_y, in.d_y2, in.y, in.x, in.gamma, in.beta, d_x, d_delta}) &&
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
                const LaunchContext& context) {
  const Stream stream = context.stream;
  const RowTiles tiles =
      batch_norm_tiles(in.rows, in.channels, N, context.multiprocessors, kBatchNormSumsBlocks);
  launch({grid_of(tiles), kTileThreads, stream},
         gradient_sums_kernel<T, N>,
         in,
         d_delta,
         workspace,
         tiles.width,
         tiles.block_rows);
  launch({blocks_for(in.channels, kFewChannels), {kFewChannels, kGroups, 1}, stream},
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
                          T* d_x,
                          Stream stream) {
  const RowTiles tiles = row_tiles(in.rows, in.channels, N, kWrittenRows);
  launch({grid_of(tiles), kTileThreads, stream},
         input_gradient_kernel<T, N>,
         in,
         sums,
         products,
         in.rows * lanes,
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
      start_sums<T, N>(op.in, 1, op.d_delta, op.parameters, op.workspace, context_of(call));
      // d_delta is summed and masked already; d_y, d_y2 and y may share its memory.
      graph::BatchNormGradientInputs<T> rest = op.in;
      if (op.d_delta != nullptr) {
        rest.d_y = op.d_delta;
        rest.d_y2 = nullptr;
        rest.relu = false;
        rest.y = nullptr;
        rest.mask = nullptr;
      }
      start_input_gradient<T, N>(rest, 1, sums, products, op.d_x, stream);
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
      start_sums<T, N>(op.in, op.lanes, op.d_delta, op.parameters, op.workspace, context_of(call));
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
      start_input_gradient<T, N>(op.in, op.lanes, sums, products, op.d_x, stream);
    });
  });
}

}  // namespace lockstep::cuda

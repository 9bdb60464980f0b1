#include "runtime/cuda/ops/layer_norm.h"

#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWideThreads = 256;  // of a block for long rows

// Vectors of N elements that a thread keeps in registers: more would not fit.
template <int N>
inline constexpr int kMostHeld = N == 8 ? 4 : 8;

// Backward gives each block of threads a block of rows and keeps its share of d_gamma and d_beta in
// registers.
constexpr int64_t kRowBlocks = 1024;
int64_t rows_per_block(int64_t rows) { return (rows + kRowBlocks - 1) / kRowBlocks; }

// The elements of a row that one of Threads threads works on: vectors `thread`, `thread` + Threads,
// ... of N elements. Their first Held vectors are kept in registers.
template <int N, int Held, int Threads>
struct RowPart {
  float values[Held][N] = {};

  // f(column, values) for each vector.
  template <typename F>
  __device__ __forceinline__ void each(int64_t columns, int thread, F f) {
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * Threads + thread) * N;
      if (column < columns) f(column, values[k]);
    }
  }
};

// The same bits in all RowThreads threads of a row: a warp, or a block of so many.
template <int RowThreads>
__device__ __forceinline__ float row_sum(float value) {
  if constexpr (RowThreads == kWarp) return warp_reduce<Sum>(value);
  return block_reduce<Sum, RowThreads>(value);
}

// A block has as many rows as fit in kThreads threads, or one.
template <int RowThreads>
inline constexpr int kBlockThreads = RowThreads < kThreads ? kThreads : RowThreads;

template <typename T, int N, int Held, int RowThreads>
__global__ void __launch_bounds__(kBlockThreads<RowThreads>)
    forward_kernel(LayerNormForward<T> op) {
  constexpr int kRows = kBlockThreads<RowThreads> / RowThreads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / RowThreads;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % RowThreads;
  const int64_t begin = row * op.columns;
  const auto columns = static_cast<float>(op.columns);

  RowPart<N, Held, RowThreads> part;
  float sum = 0;
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    load(op.x + begin + column, x);
    if (op.delta != nullptr) {
      float delta[N];
      load(op.delta + begin + column, delta);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = to_float(round_to<T>(x[i] + delta[i]));
      store(x, op.sum + begin + column);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sum += x[i];
  });
  const float mean = row_sum<RowThreads>(sum) / columns;
  float squares = 0;
  part.each(op.columns, lane, [&](int64_t, float(&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (x[i] - mean) * (x[i] - mean);
  });
  const float rstd = rsqrtf(row_sum<RowThreads>(squares) / columns + op.epsilon);
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    float gamma[N], beta[N] = {};
    load(op.gamma + column, gamma);
    if (op.beta != nullptr) load(op.beta + column, beta);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
    store(x, op.y + begin + column);
  });
  if (lane == 0) {
    op.mean[row] = mean;
    op.rstd[row] = rstd;
  }
}

template <typename T, int N, int Held, int Threads>
__global__ void __launch_bounds__(Threads)
    backward_kernel(LayerNormBackward<T> op, int64_t block_rows) {
  const int thread = threadIdx.x;
  const int64_t first = blockIdx.x * block_rows;
  const int64_t last = first + block_rows < op.rows ? first + block_rows : op.rows;
  RowPart<N, Held, Threads> gamma, d_gamma, d_beta;
  gamma.each(op.columns, thread, [&](int64_t column, float(&g)[N]) { load(op.gamma + column, g); });

  for (int64_t row = first; row < last; ++row) {
    const int64_t begin = row * op.columns;
    const float mean = op.mean[row], rstd = op.rstd[row];
    RowPart<N, Held, Threads> g, xhat;
    float sum_g = 0, sum_g_xhat = 0;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * Threads + thread) * N;
      if (column >= op.columns) continue;
      float d_y[N];
      load(op.d_y + begin + column, d_y);
      load(op.x + begin + column, xhat.values[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat.values[k][i] = (xhat.values[k][i] - mean) * rstd;
        d_gamma.values[k][i] += d_y[i] * xhat.values[k][i];
        d_beta.values[k][i] += d_y[i];
        g.values[k][i] = d_y[i] * gamma.values[k][i];
        sum_g += g.values[k][i];
        sum_g_xhat += g.values[k][i] * xhat.values[k][i];
      }
    }
    const auto columns = static_cast<float>(op.columns);
    const float mean_g = block_reduce<Sum, Threads>(sum_g) / columns;
    const float mean_g_xhat = block_reduce<Sum, Threads>(sum_g_xhat) / columns;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * Threads + thread) * N;
      if (column >= op.columns) continue;
      float d_x[N] = {};
      if (op.d_sum != nullptr) load(op.d_sum + begin + column, d_x);
#pragma unroll
      for (int i = 0; i < N; ++i)
        d_x[i] += rstd * (g.values[k][i] - mean_g - xhat.values[k][i] * mean_g_xhat);
      store(d_x, op.d_x + begin + column);
    }
  }

  // Partials of d_gamma, then those of d_beta.
  float* partials = op.workspace + blockIdx.x * op.columns;
  d_gamma.each(op.columns, thread, [&](int64_t column, float(&sums)[N]) {
    for (int i = 0; i < N; ++i) partials[column + i] = sums[i];
  });
  if (op.d_beta == nullptr) return;
  partials += gridDim.x * op.columns;
  d_beta.each(op.columns, thread, [&](int64_t column, float(&sums)[N]) {
    for (int i = 0; i < N; ++i) partials[column + i] = sums[i];
  });
}

// Calls f with the least of Held, 2 Held, 4 Held, ... that is no less than `vectors`.
template <int N, int Held, typename F>
void with_held(int64_t vectors, F f) {
  if constexpr (Held < kMostHeld<N>) {
    if (vectors > Held) return with_held<N, 2 * Held>(vectors, f);
  }
  LOCKSTEP_REQUIRE(vectors <= Held);
  f(std::integral_constant<int, Held>());
}

// Calls f with the fewest threads, of those given, that can hold a row, and with the vectors that
// each of them then holds: 1, 2, 4 or 8. Rows that `Fewer` threads can hold do not come here, so
// that a thread has more than a least number of vectors and fewer kernels are compiled.
template <int N, int Fewer, int Few, int... More, typename F>
void with_threads(int64_t columns, F f) {
  if constexpr (sizeof...(More) > 0) {
    if (columns > kMostHeld<N> * Few * N) return with_threads<N, Few, More...>(columns, f);
  }
  constexpr int kLeast = Fewer == 0 ? 1 : 2 * kMostHeld<N> * Fewer / Few;
  with_held<N, kLeast>(blocks_for(columns, N * Few),
                       [&](auto held) { f(std::integral_constant<int, Few>(), held); });
}

template <typename T, int N>
void start_forward(const LayerNormForward<T>& op, Stream stream) {
  with_threads<N, 0, kWarp, kThreads, kWideThreads>(op.columns, [&](auto threads, auto held) {
    constexpr int kRowThreads = decltype(threads)::value;
    constexpr unsigned kBlock = kBlockThreads<kRowThreads>;
    launch({{blocks_for(op.rows, kBlock / kRowThreads), 1, 1}, {kBlock, 1, 1}, stream},
           forward_kernel<T, N, held(), kRowThreads>,
           op);
  });
}

template <typename T, int N>
void start_backward(const LayerNormBackward<T>& op, int64_t block_rows, Stream stream) {
  with_threads<N, 0, kThreads, kWideThreads>(op.columns, [&](auto threads, auto held) {
    constexpr int kBlock = decltype(threads)::value;
    launch({{blocks_for(op.rows, block_rows), 1, 1}, {kBlock, 1, 1}, stream},
           backward_kernel<T, N, held(), kBlock>,
           op,
           block_rows);
  });
}

}  // namespace

template <typename T>
void layer_norm_forward(const LayerNormForward<T>& op, Stream stream) {
  if (is_vectorizable<T>(op.columns, {op.x, op.delta, op.gamma, op.beta, op.sum, op.y})) {
    start_forward<T, kVectorWidth<T>>(op, stream);
  } else {
    start_forward<T, 1>(op, stream);
  }
}

template <typename T>
void layer_norm_backward(const LayerNormBackward<T>& op, Stream stream) {
  const int64_t block_rows = rows_per_block(op.rows);
  if (is_vectorizable<T>(op.columns, {op.d_y, op.x, op.gamma, op.d_sum, op.d_x})) {
    start_backward<T, kVectorWidth<T>>(op, block_rows, stream);
  } else {
    start_backward<T, 1>(op, block_rows, stream);
  }
  const int64_t count = blocks_for(op.rows, block_rows);
  sum_partials(op.workspace, count, op.columns, op.accumulate, op.d_gamma, stream);
  if (op.d_beta == nullptr) return;
  const float* partials = op.workspace + count * op.columns;
  sum_partials(partials, count, op.columns, op.accumulate, op.d_beta, stream);
}

size_t layer_norm_backward_workspace_bytes(int64_t rows, int64_t columns) {
  return 2 * blocks_for(rows, rows_per_block(rows)) * static_cast<size_t>(columns) * sizeof(float);
}

template void layer_norm_forward(const LayerNormForward<float>&, Stream);
template void layer_norm_forward(const LayerNormForward<BFloat16>&, Stream);
template void layer_norm_forward(const LayerNormForward<Float16>&, Stream);
template void layer_norm_backward(const LayerNormBackward<float>&, Stream);
template void layer_norm_backward(const LayerNormBackward<BFloat16>&, Stream);
template void layer_norm_backward(const LayerNormBackward<Float16>&, Stream);

}  // namespace lockstep::cuda

#include "runtime/graph/ops/layer_norm.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_parts.h"

namespace lockstep::cuda {
namespace {

template <typename T, int N, int Held, int RowThreads>
__global__ void __launch_bounds__(kBlockThreads<RowThreads>, kRowBlocks<RowThreads>)
    forward_kernel(graph::LayerNormForward<T> op) {
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

// Each block handles `block_rows` rows, and keeps their contribution to d_gamma and d_beta in
// registers.
template <typename T, int N, int Held, int Threads>
__global__ void __launch_bounds__(Threads)
    backward_kernel(graph::LayerNormBackward<T> op, int64_t block_rows) {
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
      load(op.sum + begin + column, xhat.values[k]);
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
      float d_sum[N] = {};
      if (op.d_residual != nullptr) load(op.d_residual + begin + column, d_sum);
#pragma unroll
      for (int i = 0; i < N; ++i)
        d_sum[i] += rstd * (g.values[k][i] - mean_g - xhat.values[k][i] * mean_g_xhat);
      store(d_sum, op.d_sum + begin + column);
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

void run_forward(const graph::OpCall& call) {
  by_type<graph::LayerNormForward>(call, [&]<typename T>(const auto& op) {
    const bool vectors =
        is_vectorizable<T>(op.columns, {op.x, op.delta, op.gamma, op.beta, op.sum, op.y});
    start_by_rows<T>(op, vectors, stream_of(call), []<int N, int Held, int RowThreads>() {
      return forward_kernel<T, N, Held, RowThreads>;
    });
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::LayerNormBackward>(call, [&]<typename T>(const auto& op) {
    const Stream stream = stream_of(call);
    const bool vectors =
        is_vectorizable<T>(op.columns, {op.d_y, op.sum, op.gamma, op.d_residual, op.d_sum});
    const int64_t blocks =
        start_by_row_blocks<T>(op, vectors, stream, []<int N, int Held, int Threads>() {
          return backward_kernel<T, N, Held, Threads>;
        });
    sum_partials(op.workspace, blocks, op.columns, false, op.d_gamma, stream);
    if (op.d_beta == nullptr) return;
    sum_partials(op.workspace + blocks * op.columns, blocks, op.columns, false, op.d_beta, stream);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, exec::no_workspace, supports_row>(graph::OpKind::kLayerNorm, "native"),
    exec::row<run_backward, layer_norm_backward_workspace, supports_row>(
        graph::OpKind::kLayerNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaLayerNorm = kRows;

}  // namespace lockstep::cuda

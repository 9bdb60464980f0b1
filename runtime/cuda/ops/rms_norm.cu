#include "runtime/graph/ops/rms_norm.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_parts.h"

namespace lockstep::cuda {
namespace {

// A warp per row, or a block for long rows; the row stays in registers.
template <typename T, int N, int Held, int RowThreads>
__global__ void __launch_bounds__(kBlockThreads<RowThreads>, kRowBlocks<RowThreads>)
    forward_kernel(graph::RmsNormForward<T> op) {
  constexpr int kRows = kBlockThreads<RowThreads> / RowThreads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / RowThreads;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % RowThreads;
  const int64_t begin = row * op.columns;

  RowPart<N, Held, RowThreads> part;
  float squares = 0;
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    load(op.x + begin + column, x);
    if (op.delta != nullptr) {
      float delta[N];
      load(op.delta + begin + column, delta);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = to_float(round_to<T>(x[i] + delta[i]));
      store(x, op.sum + begin + column);
    }
  });
  part.each(op.columns, lane, [&](int64_t, float(&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) squares += x[i] * x[i];
  });
  const float mean = row_sum<RowThreads>(squares) / static_cast<float>(op.columns);
  const float rstd = rsqrtf(mean + op.epsilon);
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    float gamma[N];
    load(op.gamma + column, gamma);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = x[i] * rstd * gamma[i];
    store(x, op.y + begin + column);
  });
  if (lane == 0) op.rstd[row] = rstd;
}

// Each block handles `block_rows` rows, and keeps their contribution to d_gamma in registers.
template <typename T, int N, int Held, int Threads>
__global__ void __launch_bounds__(Threads)
    backward_kernel(graph::RmsNormBackward<T> op, int64_t block_rows) {
  const int thread = threadIdx.x;
  const int64_t first = blockIdx.x * block_rows;
  const int64_t last = first + block_rows < op.rows ? first + block_rows : op.rows;
  RowPart<N, Held, Threads> gamma, d_gamma;
  gamma.each(op.columns, thread, [&](int64_t column, float(&g)[N]) { load(op.gamma + column, g); });

  for (int64_t row = first; row < last; ++row) {
    const int64_t begin = row * op.columns;
    const float rstd = op.rstd[row];
    RowPart<N, Held, Threads> g, xhat;
    float sum_g_xhat = 0;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * Threads + thread) * N;
      if (column >= op.columns) continue;
      load(op.d_y + begin + column, g.values[k]);
      load(op.sum + begin + column, xhat.values[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat.values[k][i] *= rstd;
        d_gamma.values[k][i] += g.values[k][i] * xhat.values[k][i];
        g.values[k][i] *= gamma.values[k][i];
        sum_g_xhat += g.values[k][i] * xhat.values[k][i];
      }
    }
    const float mean_g_xhat =
        block_reduce<Sum, Threads>(sum_g_xhat) / static_cast<float>(op.columns);
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * Threads + thread) * N;
      if (column >= op.columns) continue;
      float d_sum[N] = {};
      if (op.d_residual != nullptr) load(op.d_residual + begin + column, d_sum);
#pragma unroll
      for (int i = 0; i < N; ++i)
        d_sum[i] += rstd * (g.values[k][i] - xhat.values[k][i] * mean_g_xhat);
      store(d_sum, op.d_sum + begin + column);
    }
  }

  float* partials = op.workspace + blockIdx.x * op.columns;
  d_gamma.each(op.columns, thread, [&](int64_t column, float(&sums)[N]) {
    for (int i = 0; i < N; ++i) partials[column + i] = sums[i];
  });
}

void run_forward(const graph::OpCall& call) {
  by_type<graph::RmsNormForward>(call, [&]<typename T>(const auto& op) {
    const bool vectors = is_vectorizable<T>(op.columns, {op.x, op.delta, op.gamma, op.sum, op.y});
    start_by_rows<T>(op, vectors, stream_of(call), []<int N, int Held, int RowThreads>() {
      return forward_kernel<T, N, Held, RowThreads>;
    });
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::RmsNormBackward>(call, [&]<typename T>(const auto& op) {
    const bool vectors =
        is_vectorizable<T>(op.columns, {op.d_y, op.d_residual, op.sum, op.gamma, op.d_sum});
    const int64_t blocks =
        start_by_row_blocks<T>(op, vectors, stream_of(call), []<int N, int Held, int Threads>() {
          return backward_kernel<T, N, Held, Threads>;
        });
    sum_partials(op.workspace, blocks, op.columns, false, op.d_gamma, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, exec::no_workspace, supports_row>(graph::OpKind::kRmsNorm, "native"),
    exec::row<run_backward, rms_norm_backward_workspace, supports_row>(
        graph::OpKind::kRmsNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaRmsNorm = kRows;

}  // namespace lockstep::cuda

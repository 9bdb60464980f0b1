#include "runtime/cuda/ops/row_norm.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_parts.h"

namespace lockstep::cuda {
namespace {

// Offset of a head; heads are divided in 32 bits (qk_norm_supports()).
__device__ __forceinline__ int64_t begin_of_head(const graph::RowPlaces& places,
                                                 int64_t head,
                                                 int64_t size) {
  const auto heads = static_cast<uint32_t>(places.heads), number = static_cast<uint32_t>(head);
  const uint32_t token = number / heads;
  return token * places.stride + (number - token * heads) * size;
}

// A warp per row, or a block for long rows; the row stays in registers. Centred: of layer_norm.
template <bool Centred, typename T, int N, int Held, int RowThreads>
__global__ void __launch_bounds__(kBlockThreads<RowThreads>, kRowBlocks<RowThreads>)
    forward_kernel(graph::RowNormForward<T> op) {
  constexpr int kRows = kBlockThreads<RowThreads> / RowThreads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / RowThreads;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % RowThreads;
  const bool is_head = !Centred && RowThreads == kWarp && op.places.heads > 1;
  const int64_t begin =
      is_head ? begin_of_head(op.places, row, op.columns) : row * op.places.stride;
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
  float mean = 0;
  if constexpr (Centred) mean = row_reduce<Sum, RowThreads>(sum) / columns;
  float squares = 0;
  part.each(op.columns, lane, [&](int64_t, float(&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (x[i] - mean) * (x[i] - mean);
  });
  const float rstd = rsqrtf(row_reduce<Sum, RowThreads>(squares) / columns + op.epsilon);
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    float gamma[N], beta[N] = {};
    load(op.gamma + column, gamma);
    if (Centred && op.beta != nullptr) load(op.beta + column, beta);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float xhat = (x[i] - mean) * rstd;
      x[i] = Centred ? xhat * gamma[i] + beta[i] : xhat * gamma[i];
    }
    store(x, op.y + begin + column);
  });
  if (lane == 0) {
    if constexpr (Centred) op.mean[row] = mean;
    op.rstd[row] = rstd;
  }
}

// RowThreads threads, of which a block has one or more groups, handle `part_rows` rows, and keep
// their contribution to d_gamma and d_beta in registers. For heads, the minimum of one block per
// multiprocessor keeps the compiler from spilling registers to fit a few more blocks.
template <bool Centred, typename T, int N, int Held, int RowThreads>
__global__ void __launch_bounds__(kBlockThreads<RowThreads>, RowThreads == kWarp ? 1 : 0)
    backward_kernel(graph::RowNormBackward<T> op, int64_t part_rows) {
  constexpr bool kAreHeads = RowThreads == kWarp;  // which have no d_residual
  constexpr int kParts = kBlockThreads<RowThreads> / RowThreads;
  const int group = kParts == 1 ? 0 : threadIdx.x / RowThreads;
  const int lane = threadIdx.x - group * RowThreads;
  const int64_t part = static_cast<int64_t>(blockIdx.x) * kParts + group;
  const int64_t first = part * part_rows;
  if (kParts > 1 && first >= op.rows) return;
  const int64_t last = first + part_rows < op.rows ? first + part_rows : op.rows;
  RowPart<N, Held, RowThreads> gamma, d_gamma, d_beta;
  gamma.each(op.columns, lane, [&](int64_t column, float(&g)[N]) { load(op.gamma + column, g); });

  for (int64_t row = first; row < last; ++row) {
    const int64_t begin = kAreHeads ? begin_of_head(op.places, row, op.columns) : row * op.columns;
    const float mean = Centred ? op.mean[row] : 0, rstd = op.rstd[row];
    RowPart<N, Held, RowThreads> g, xhat;
    float sum_g = 0, sum_g_xhat = 0;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * RowThreads + lane) * N;
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
    float mean_g = 0;
    if constexpr (Centred) mean_g = row_reduce<Sum, RowThreads>(sum_g) / columns;
    const float mean_g_xhat = row_reduce<Sum, RowThreads>(sum_g_xhat) / columns;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * RowThreads + lane) * N;
      if (column >= op.columns) continue;
      float d_sum[N] = {};
      if (!kAreHeads && op.d_residual != nullptr) load(op.d_residual + begin + column, d_sum);
#pragma unroll
      for (int i = 0; i < N; ++i)
        d_sum[i] += rstd * (g.values[k][i] - mean_g - xhat.values[k][i] * mean_g_xhat);
      store(d_sum, op.d_sum + begin + column);
    }
  }

  // Partials of d_gamma, then those of d_beta.
  float* partials = op.workspace + part * op.columns;
  d_gamma.each(op.columns, lane, [&](int64_t column, float(&sums)[N]) {
    for (int i = 0; i < N; ++i) partials[column + i] = sums[i];
  });
  if (!Centred || op.d_beta == nullptr) return;
  static_assert(!Centred || kParts == 1);
  partials += gridDim.x * op.columns;
  d_beta.each(op.columns, lane, [&](int64_t column, float(&sums)[N]) {
    for (int i = 0; i < N; ++i) partials[column + i] = sums[i];
  });
}

// Starts kernels with groups of one of Threads threads for parts of `part_rows` rows, then adds the
// parts' sums.
template <bool Centred, int... Threads, typename T>
void start_backward(const graph::RowNormBackward<T>& op, int64_t part_rows, Stream stream) {
  const bool vectors =
      is_vectorizable<T>(op.columns, {op.d_y, op.sum, op.gamma, op.d_residual, op.d_sum});
  const int64_t parts = start_by_row_parts<T, Threads...>(
      op, part_rows, vectors, stream, []<int N, int Held, int RowThreads>() {
        return backward_kernel<Centred, T, N, Held, RowThreads>;
      });
  sum_partials(op.workspace, parts, op.columns, false, op.d_gamma, stream);
  if (op.d_beta == nullptr) return;
  sum_partials(op.workspace + parts * op.columns, parts, op.columns, false, op.d_beta, stream);
}

template <bool Centred, typename T>
void start_forward(const graph::RowNormForward<T>& op, Stream stream) {
  const bool vectors =
      is_vectorizable<T>(op.columns, {op.x, op.delta, op.gamma, op.beta, op.sum, op.y});
  start_by_rows<T>(op, vectors, stream, []<int N, int Held, int RowThreads>() {
    return forward_kernel<Centred, T, N, Held, RowThreads>;
  });
}

}  // namespace

template <typename T>
void row_norm_forward(const graph::RowNormForward<T>& op, Stream stream) {
  op.centred ? start_forward<true>(op, stream) : start_forward<false>(op, stream);
}

template <typename T>
void head_norm_backward(const graph::RowNormBackward<T>& op, Stream stream) {
  start_backward<false, kWarp>(op, heads_per_warp(op.rows), stream);
}

template void row_norm_forward(const graph::RowNormForward<float>&, Stream);
template void row_norm_forward(const graph::RowNormForward<BFloat16>&, Stream);
template void row_norm_forward(const graph::RowNormForward<Float16>&, Stream);
template void head_norm_backward(const graph::RowNormBackward<float>&, Stream);
template void head_norm_backward(const graph::RowNormBackward<BFloat16>&, Stream);
template void head_norm_backward(const graph::RowNormBackward<Float16>&, Stream);

namespace {

void run_forward(const graph::OpCall& call) {
  by_type<graph::RowNormForward>(
      call, [&]<typename T>(const auto& op) { row_norm_forward<T>(op, stream_of(call)); });
}

template <bool Centred>
void run_backward(const graph::OpCall& call) {
  by_type<graph::RowNormBackward>(call, [&]<typename T>(const auto& op) {
    start_backward<Centred, kRowThreads, kWideRowThreads>(
        op, rows_per_block(op.rows), stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, exec::no_workspace, supports_row>(graph::OpKind::kLayerNorm, "native"),
    exec::row<run_backward<true>, row_norm_backward_workspace, supports_row>(
        graph::OpKind::kLayerNormBackward, "native"),
    exec::row<run_forward, exec::no_workspace, supports_row>(graph::OpKind::kRmsNorm, "native"),
    exec::row<run_backward<false>, row_norm_backward_workspace, supports_row>(
        graph::OpKind::kRmsNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaRowNorm = kRows;

}  // namespace lockstep::cuda

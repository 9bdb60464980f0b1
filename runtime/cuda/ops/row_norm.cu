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

// ---- Backward ----
//
// One wave of blocks shares the rows. A block has groups of RowThreads threads: warps, or several
// warps for long rows. Each group takes every (blocks * groups)-th row and adds what the row
// contributes to d_gamma and d_beta to sums that it keeps in registers. When no rows are left, the
// block adds up the sums of its groups in order and writes them, and sum_partials() adds up the
// blocks' sums. Each thread keeps its part of d_y and of `sum` as stored, so that both are read
// once.

// A thread has 128 registers or, for many floats, 255.
template <typename T, int N, int Held>
inline constexpr int kBackwardThreads = sizeof(T) == sizeof(float) && (N * Held > 16) ? 256 : 512;
// Blocks on a multiprocessor: if few elements of a row need few registers, more than one.
template <bool Centred, int N, int Held>
inline constexpr int kBackwardBlocks = (N * Held) <= (Centred ? 4 : 8) ? kRowNormBlocks : 1;

template <bool Centred, typename T, int N, int Held, int RowThreads>
__global__ void __launch_bounds__(kBackwardThreads<T, N, Held>, kBackwardBlocks<Centred, N, Held>)
    backward_kernel(graph::RowNormBackward<T> op) {
  constexpr int kThreads = kBackwardThreads<T, N, Held>, kGroups = kThreads / RowThreads;
  const int group = threadIdx.x / RowThreads, lane = threadIdx.x % RowThreads;
  const auto columns = static_cast<int>(op.columns);
  const bool are_heads = !Centred && RowThreads == kWarp && op.places.heads > 1;
  float d_gamma[Held][N] = {}, d_beta[Held][N] = {};

  RowSums<RowThreads, kThreads> row_sums;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGroups;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kGroups; first < op.rows; first += step) {
    // The last rows may be fewer than the groups, which all go on, because they share barriers.
    const bool has_row = first + group < op.rows;
    const int64_t row = has_row ? first + group : first;
    const int row_columns = has_row ? columns : 0;
    const int64_t begin =
        are_heads ? begin_of_head(op.places, row, columns) : row * op.places.stride;
    Vector<T, N> d_y[Held], x[Held];
#pragma unroll
    for (int k = 0; k < Held; ++k) {  // past the row's end another vector, which is not used
      const int column = (k * RowThreads + lane) * N;
      const int64_t at = begin + (column < row_columns ? column : 0);
      d_y[k] = *reinterpret_cast<const Vector<T, N>*>(op.d_y + at);
      x[k] = *reinterpret_cast<const Vector<T, N>*>(op.sum + at);
    }
    const float mean = Centred ? op.mean[row] : 0, rstd = op.rstd[row];
    float sum_g = 0, sum_g_xhat = 0;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int column = (k * RowThreads + lane) * N;
      if (column >= row_columns) continue;
      float gamma[N], of_y[N], of_x[N];
      load(op.gamma + column, gamma);
      widen(unknown(d_y[k]), of_y);
      widen(unknown(x[k]), of_x);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float xhat = (of_x[i] - mean) * rstd, g = of_y[i] * gamma[i];
        d_gamma[k][i] += of_y[i] * xhat;
        d_beta[k][i] += of_y[i];
        sum_g += g;
        sum_g_xhat += g * xhat;
      }
    }
    row_sums.add_up(sum_g, sum_g_xhat);
    const float mean_g = Centred ? sum_g / static_cast<float>(columns) : 0;
    const float mean_g_xhat = sum_g_xhat / static_cast<float>(columns);
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int column = (k * RowThreads + lane) * N;
      if (column >= row_columns) continue;
      float gamma[N], of_y[N], of_x[N], d_sum[N] = {};
      load(op.gamma + column, gamma);
      widen(unknown(d_y[k]), of_y);
      widen(unknown(x[k]), of_x);
      if (op.d_residual != nullptr) load(op.d_residual + begin + column, d_sum);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float xhat = (of_x[i] - mean) * rstd;
        d_sum[i] += rstd * (of_y[i] * gamma[i] - mean_g - xhat * mean_g_xhat);
      }
      store(d_sum, op.d_sum + begin + column);
    }
  }

  // The sums of all groups, RowThreads vectors of columns at a time. The columns of a vector lie
  // in different banks.
  constexpr int kSums = Centred ? 2 : 1, kColumns = RowThreads * N;
  __shared__ float sums[kSums][N][kThreads + kWarp / N];
#pragma unroll
  for (int k = 0; k < Held; ++k) {
    if (k * kColumns >= columns) break;
    if (k > 0) __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[0][i][threadIdx.x] = d_gamma[k][i];
      if constexpr (Centred) sums[1][i][threadIdx.x] = d_beta[k][i];
    }
    __syncthreads();
    for (int n = threadIdx.x; n < kSums * kColumns; n += kThreads) {
      const int which = n / kColumns, offset = n % kColumns, column = k * kColumns + offset;
      if (column >= columns) continue;
      float sum = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) sum += sums[which][offset % N][g * RowThreads + offset / N];
      op.workspace[static_cast<int64_t>(which * gridDim.x + blockIdx.x) * columns + column] = sum;
    }
  }
}

template <bool Centred, typename T>
void start_backward(const graph::RowNormBackward<T>& op, const LaunchContext& context) {
  const bool vectors =
      is_vectorizable<T>(op.columns, {op.d_y, op.sum, op.gamma, op.d_residual, op.d_sum});
  with_vectors<T>(vectors, [&](auto n) {
    constexpr int N = decltype(n)::value;
    with_threads<N, 0, kWarp, kRowThreads, kWideRowThreads>(
        op.columns, [&](auto row_threads, auto held) {
          constexpr int kHeld = decltype(held)::value, kRow = decltype(row_threads)::value;
          constexpr int kThreads = kBackwardThreads<T, N, kHeld>;
          const int64_t blocks = std::min<int64_t>(
              blocks_for(op.rows, kThreads / kRow),
              wave_of_blocks(context.multiprocessors, kBackwardBlocks<Centred, N, kHeld>));
          launch({static_cast<unsigned>(blocks), kThreads, context.stream},
                 backward_kernel<Centred, T, N, kHeld, kRow>,
                 op);
          sum_partials(
              op.workspace, blocks, op.columns, false, op.d_gamma, op.d_beta, context.stream);
        });
  });
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
void head_norm_backward(const graph::RowNormBackward<T>& op, const LaunchContext& context) {
  start_backward<false>(op, context);
}

template void row_norm_forward(const graph::RowNormForward<float>&, Stream);
template void row_norm_forward(const graph::RowNormForward<BFloat16>&, Stream);
template void row_norm_forward(const graph::RowNormForward<Float16>&, Stream);
template void head_norm_backward(const graph::RowNormBackward<float>&, const LaunchContext&);
template void head_norm_backward(const graph::RowNormBackward<BFloat16>&, const LaunchContext&);
template void head_norm_backward(const graph::RowNormBackward<Float16>&, const LaunchContext&);

namespace {

void run_forward(const graph::OpCall& call) {
  by_type<graph::RowNormForward>(
      call, [&]<typename T>(const auto& op) { row_norm_forward<T>(op, stream_of(call)); });
}

template <bool Centred>
void run_backward(const graph::OpCall& call) {
  by_type<graph::RowNormBackward>(
      call, [&]<typename T>(const auto& op) { start_backward<Centred>(op, context_of(call)); });
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

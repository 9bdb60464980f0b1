// Norms of heads, each by a warp that holds it in registers, and a copy of the columns after them.
#include "runtime/graph/ops/qk_norm.h"

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_parts.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;

// Offset of a head; indices of heads are divided in 32 bits.
__device__ __forceinline__ int64_t begin_of(const graph::RowPlaces& places,
                                            uint32_t head,
                                            int64_t size) {
  const auto heads = static_cast<uint32_t>(places.heads);
  const uint32_t token = head / heads;
  return token * places.stride + (head - token * heads) * size;
}

template <typename T, int N, int Held>
__global__ void __launch_bounds__(kThreads) forward_kernel(graph::RmsNormForward<T> op) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (head >= op.rows) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t begin = begin_of(op.places, static_cast<uint32_t>(head), op.columns);
  RowPart<N, Held, kWarp> part;
  float squares = 0;
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    load(op.x + begin + column, x);
#pragma unroll
    for (int i = 0; i < N; ++i) squares += x[i] * x[i];
  });
  const float mean = warp_reduce<Sum>(squares) / static_cast<float>(op.columns);
  const float rstd = rsqrtf(mean + op.epsilon);
  part.each(op.columns, lane, [&](int64_t column, float(&x)[N]) {
    float gamma[N];
    load(op.gamma + column, gamma);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = x[i] * rstd * gamma[i];
    store(x, op.y + begin + column);
  });
  if (lane == 0) op.rstd[head] = rstd;
}

// Each warp handles `warp_heads` heads, and keeps their contribution to d_gamma in registers.
template <typename T, int N, int Held>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(graph::RmsNormBackward<T> op, int64_t warp_heads) {
  const int lane = threadIdx.x % kWarp;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int64_t first = warp * warp_heads;
  if (first >= op.rows) return;
  const int64_t last = first + warp_heads < op.rows ? first + warp_heads : op.rows;
  RowPart<N, Held, kWarp> gamma, d_gamma;
  gamma.each(op.columns, lane, [&](int64_t column, float(&g)[N]) { load(op.gamma + column, g); });
  for (int64_t head = first; head < last; ++head) {
    const int64_t begin = begin_of(op.places, static_cast<uint32_t>(head), op.columns);
    const float rstd = op.rstd[head];
    RowPart<N, Held, kWarp> g, xhat;
    float sum_g_xhat = 0;
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * kWarp + lane) * N;
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
    const float mean_g_xhat = warp_reduce<Sum>(sum_g_xhat) / static_cast<float>(op.columns);
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * kWarp + lane) * N;
      if (column >= op.columns) continue;
#pragma unroll
      for (int i = 0; i < N; ++i)
        g.values[k][i] = rstd * (g.values[k][i] - xhat.values[k][i] * mean_g_xhat);
      store(g.values[k], op.d_sum + begin + column);
    }
  }
  float* partials = op.workspace + warp * op.columns;
  d_gamma.each(op.columns, lane, [&](int64_t column, float(&sums)[N]) {
    for (int i = 0; i < N; ++i) partials[column + i] = sums[i];
  });
}

// Calls f with the number of elements that a thread loads at once, and the number of such vectors
// that it holds.
template <typename T, typename F>
void with_part(int64_t head_size, bool vectors, F f) {
  with_vectors<T>(vectors, [&](auto n) {
    constexpr int N = decltype(n)::value;
    with_held<N, 1>(blocks_for(head_size, N * kWarp), [&](auto held) { f(n, held); });
  });
}

template <typename T>
void norm_heads(const graph::RmsNormForward<T>& op, Stream stream) {
  const bool vectors = is_vectorizable<T>(op.columns, {op.x, op.gamma, op.y});
  with_part<T>(op.columns, vectors, [&](auto n, auto held) {
    launch({blocks_for(op.rows, kWarps), kThreads, stream},
           forward_kernel<T, decltype(n)::value, decltype(held)::value>,
           op);
  });
}

template <typename T>
void norm_heads_backward(const graph::RmsNormBackward<T>& op, Stream stream) {
  const bool vectors = is_vectorizable<T>(op.columns, {op.d_y, op.sum, op.gamma, op.d_sum});
  const int64_t warps = warps_of(op.rows);
  with_part<T>(op.columns, vectors, [&](auto n, auto held) {
    launch({blocks_for(warps, kWarps), kThreads, stream},
           backward_kernel<T, decltype(n)::value, decltype(held)::value>,
           op,
           heads_per_warp(op.rows));
  });
  sum_partials(op.workspace, warps, op.columns, false, op.d_gamma, stream);
}

template <typename T>
struct Copy {
  graph::QkNormRest<T> rest;
  template <typename Count>
  __device__ void operator()(int64_t token, int64_t column, Count) const {
    float values[Count::value];
    const int64_t at = token * rest.width + rest.first + column;
    load(rest.from + at, values);
    store(values, rest.to + at);
  }
};

template <typename T>
void copy_rest(const graph::QkNormRest<T>& rest, Stream stream) {
  if (rest.from == rest.to) return;
  const int64_t count = rest.width - rest.first;
  const bool vectors = is_vectorizable<T>(count, {rest.from, rest.to}) &&
                       rest.width % kVectorWidth<T> == 0 && rest.first % kVectorWidth<T> == 0;
  for_each_pixel<kVectorWidth<T>>(rest.tokens, count, vectors, Copy<T>{rest}, stream);
}

void run_forward(const graph::OpCall& call) {
  by_type<graph::QkNormForward>(call, [&]<typename T>(const auto& op) {
    norm_heads(op.q, stream_of(call));
    norm_heads(op.k, stream_of(call));
    copy_rest(op.rest, stream_of(call));
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::QkNormBackward>(call, [&]<typename T>(const auto& op) {
    norm_heads_backward(op.q, stream_of(call));
    norm_heads_backward(op.k, stream_of(call));
    copy_rest(op.rest, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward, exec::no_workspace, qk_norm_supports>(graph::OpKind::kQkNorm, "native"),
    exec::row<run_backward, qk_norm_backward_workspace, qk_norm_supports>(
        graph::OpKind::kQkNormBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaQkNorm = kRows;

}  // namespace lockstep::cuda

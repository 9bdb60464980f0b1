// A warp per row or, for long rows, a block; a row is read again from the cache.
#include "runtime/graph/ops/softmax.h"

#include <limits>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/row_parts.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;          // per block
constexpr int64_t kWarpVectors = 512;  // max vectors of a row that a warp handles

// Calls f(column) for each vector of N elements of the row that this thread handles.
template <int RowThreads, int N, typename F>
__device__ __forceinline__ void each_vector(int64_t columns, F f) {
  for (int64_t column = static_cast<int64_t>(threadIdx.x % RowThreads) * N; column < columns;
       column += RowThreads * N)
    f(column);
}

template <int RowThreads>
__device__ __forceinline__ int64_t row_of_thread() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / RowThreads) + threadIdx.x / RowThreads;
}

template <typename T, int N, int RowThreads>
__global__ void __launch_bounds__(kThreads) forward_kernel(graph::SoftmaxForward<T> op) {
  const int64_t row = row_of_thread<RowThreads>();
  if (row >= op.rows) return;
  const T* x = op.x + row * op.columns;
  T* y = op.y + row * op.columns;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float largest = kNone;
  each_vector<RowThreads, N>(op.columns, [&](int64_t column) {
    float values[N];
    load(x + column, values);
#pragma unroll
    for (int k = 0; k < N; ++k) largest = Max::apply(values[k], largest);
  });
  largest = row_reduce<Max, RowThreads>(largest);
  if (op.or_zero && largest == kNone) largest = 0;  // the exponentials are then 0, not NaN
  float sum = 0;
  each_vector<RowThreads, N>(op.columns, [&](int64_t column) {
    float values[N];
    load(x + column, values);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += expf(values[k] - largest);
  });
  sum = row_reduce<Sum, RowThreads>(sum);
  const float scale = sum == 0 ? 0 : 1.0f / sum, log_sum = logf(sum);
  each_vector<RowThreads, N>(op.columns, [&](int64_t column) {
    float values[N];
    load(x + column, values);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float below = values[k] - largest;
      values[k] = op.log ? below - log_sum : expf(below) * scale;
    }
    store(values, y + column);
  });
}

template <typename T, int N, int RowThreads>
__global__ void __launch_bounds__(kThreads) backward_kernel(graph::SoftmaxBackward<T> op) {
  const int64_t row = row_of_thread<RowThreads>();
  if (row >= op.rows) return;
  const T *d_y = op.d_y + row * op.columns, *y = op.y + row * op.columns;
  float sum = 0;
  each_vector<RowThreads, N>(op.columns, [&](int64_t column) {
    float gradients[N], values[N];
    load(d_y + column, gradients);
    if (!op.log) load(y + column, values);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += op.log ? gradients[k] : gradients[k] * values[k];
  });
  sum = row_reduce<Sum, RowThreads>(sum);
  each_vector<RowThreads, N>(op.columns, [&](int64_t column) {
    float gradients[N], values[N];
    load(d_y + column, gradients);
    load(y + column, values);
#pragma unroll
    for (int k = 0; k < N; ++k)
      values[k] = op.log ? gradients[k] - expf(values[k]) * sum : values[k] * (gradients[k] - sum);
    store(values, op.d_x + row * op.columns + column);
  });
}

// Launches kernel.operator()<N, RowThreads>() with the op.
template <typename T, typename Op, typename F>
void start(const Op& op, bool vectors, Stream stream, F kernel) {
  if (op.rows == 0) return;
  with_vectors<T>(vectors, [&](auto n) {
    constexpr int N = decltype(n)::value;
    const auto start_with = [&](unsigned rows_each, auto chosen) {
      launch({blocks_for(op.rows, rows_each), kThreads, stream}, chosen, op);
    };
    if (op.columns <= kWarpVectors * N) {
      start_with(kThreads / kWarp, kernel.template operator()<N, kWarp>());
    } else {
      start_with(1, kernel.template operator()<N, kThreads>());
    }
  });
}

void run_forward(const graph::OpCall& call) {
  by_type<graph::SoftmaxForward>(call, [&]<typename T>(const auto& op) {
    start<T>(op,
             is_vectorizable<T>(op.columns, {op.x, op.y}),
             stream_of(call),
             []<int N, int RowThreads>() { return forward_kernel<T, N, RowThreads>; });
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::SoftmaxBackward>(call, [&]<typename T>(const auto& op) {
    start<T>(op,
             is_vectorizable<T>(op.columns, {op.d_y, op.y, op.d_x}),
             stream_of(call),
             []<int N, int RowThreads>() { return backward_kernel<T, N, RowThreads>; });
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kSoftmax, "native"),
    exec::row<run_backward>(graph::OpKind::kSoftmaxBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaSoftmax = kRows;

}  // namespace lockstep::cuda

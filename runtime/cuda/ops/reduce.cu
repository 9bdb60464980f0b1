// As on the CPU, reductions go by rows, with a block of threads for each part of a result, or by
// columns, with a thread for each part. The parts, whose number depends on the shape alone, are
// then combined in order. Sums of a matrix's columns in float are those of flat/column_sum.h.
#include "runtime/graph/ops/reduce.h"

#include <algorithm>
#include <limits>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/indexing.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

struct SumOf {
  static constexpr float kNone = 0;
  static __device__ __forceinline__ float apply(float a, float b) { return a + b; }
};
struct ProductOf {
  static constexpr float kNone = 1;
  static __device__ __forceinline__ float apply(float a, float b) { return a * b; }
};
// Propagates NaN from either side; the butterfly of a warp gives all lanes the same.
struct MaxOf {
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  static __device__ __forceinline__ float apply(float a, float b) {
    return b > a || b != b ? b : a;
  }
};
struct MinOf {
  static constexpr float kNone = std::numeric_limits<float>::infinity();
  static __device__ __forceinline__ float apply(float a, float b) {
    return b < a || b != b ? b : a;
  }
};

template <typename T, typename Operation>
struct Source {
  const T* x;
  graph::ReduceLoops loops;
  ReduceParts parts;

  __device__ __forceinline__ float term(int64_t begin, int64_t r) const {
    return to_float(x[begin + loops.reduced.offset(r)]);
  }
  __device__ __forceinline__ int64_t end_of(int64_t part) const {
    const int64_t end = (part + 1) * parts.each;
    return end < loops.reduced.count ? end : loops.reduced.count;
  }
};

// For results of rows: a block computes one part of one result, its threads alternate along the
// row.
template <typename T, typename Operation, typename Y>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(Source<T, Operation> of, float divisor, Y* to) {
  const int64_t number = blockIdx.x, part = number % of.parts.count;
  const int64_t begin = of.loops.kept.offset(number / of.parts.count), end = of.end_of(part);
  float sum = Operation::kNone;
  for (int64_t r = part * of.parts.each + threadIdx.x; r < end; r += kThreads)
    sum = Operation::apply(sum, of.term(begin, r));
  sum = block_reduce<Operation, kThreads>(sum);
  if (threadIdx.x == 0) to[number] = round_to<Y>(sum / divisor);
}

// The same for short rows: a warp computes one result.
template <typename T, typename Operation, typename Y>
__global__ void __launch_bounds__(kThreads)
    short_rows_kernel(Source<T, Operation> of, float divisor, Y* to) {
  const int64_t number =
      static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (number >= of.loops.kept.count) return;
  const int64_t begin = of.loops.kept.offset(number);
  float sum = Operation::kNone;
  for (int64_t r = threadIdx.x % kWarp; r < of.loops.reduced.count; r += kWarp)
    sum = Operation::apply(sum, of.term(begin, r));
  sum = warp_reduce<Operation>(sum);
  if (threadIdx.x % kWarp == 0) to[number] = round_to<Y>(sum / divisor);
}

// For results of columns: a thread computes part block_down() of one result.
template <typename T, typename Operation, typename Y>
__global__ void __launch_bounds__(kThreads)
    columns_kernel(Source<T, Operation> of, float divisor, Y* to) {
  const int64_t result = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t part = block_down();
  if (result >= of.loops.kept.count || part >= of.parts.count) return;
  const int64_t begin = of.loops.kept.offset(result), end = of.end_of(part);
  float sum = Operation::kNone;
#pragma unroll 4
  for (int64_t r = part * of.parts.each; r < end; ++r)
    sum = Operation::apply(sum, of.term(begin, r));
  to[part * of.loops.kept.count + result] = round_to<Y>(sum / divisor);
}

// A warp combines the parts of one result. Parts are `part_stride` apart, results `result_stride`.
template <typename Operation, typename Y>
__global__ void __launch_bounds__(kThreads) combine_kernel(const float* sums,
                                                           int64_t results,
                                                           int64_t parts,
                                                           int64_t result_stride,
                                                           int64_t part_stride,
                                                           float divisor,
                                                           Y* y) {
  const int64_t result =
      static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (result >= results) return;
  float sum = Operation::kNone;
  for (int64_t part = threadIdx.x % kWarp; part < parts; part += kWarp)
    sum = Operation::apply(sum, sums[result * result_stride + part * part_stride]);
  sum = warp_reduce<Operation>(sum);
  if (threadIdx.x % kWarp == 0) y[result] = round_to<Y>(sum / divisor);
}

template <typename T, typename Operation, typename Y>
void start_parts(const Source<T, Operation>& of, float divisor, Y* to, Stream stream) {
  const int64_t results = of.loops.kept.count;
  const auto start = [&](dim3 grid, auto kernel) {
    launch({grid, kThreads, stream}, kernel, of, divisor, to);
  };
  if (!of.loops.by_rows()) {
    start(tall_grid(blocks_for(results, kThreads), of.parts.count),
          columns_kernel<T, Operation, Y>);
  } else if (of.loops.reduced.count <= 1024) {
    start(blocks_for(results, kThreads / kWarp), short_rows_kernel<T, Operation, Y>);
  } else {
    start(blocks_for(results * of.parts.count, 1), rows_kernel<T, Operation, Y>);
  }
}

template <typename T, typename Operation, typename Y>
void reduce(const graph::ReduceForward<T>& op, Stream stream) {
  const Source<T, Operation> of{op.x, op.loops, ReduceParts::of(op.loops)};
  const float divisor =
      op.kind == graph::ReduceKind::kMean ? static_cast<float>(op.loops.reduced.count) : 1.0f;
  Y* const y = static_cast<Y*>(op.y);
  const int64_t results = op.loops.kept.count, parts = of.parts.count;
  if (results == 0) return;
  if (parts == 1) return start_parts(of, divisor, y, stream);
  start_parts(of, 1.0f, op.workspace, stream);
  const bool rows = op.loops.by_rows();
  launch({blocks_for(results, kThreads / kWarp), kThreads, stream},
         combine_kernel<Operation, Y>,
         op.workspace,
         results,
         parts,
         rows ? parts : 1,
         rows ? 1 : results,
         divisor,
         y);
}

template <typename T, typename Y>
void reduce(const graph::ReduceForward<T>& op, Stream stream) {
  switch (op.kind) {
    case graph::ReduceKind::kSum:
    case graph::ReduceKind::kMean: return reduce<T, SumOf, Y>(op, stream);
    case graph::ReduceKind::kMax: return reduce<T, MaxOf, Y>(op, stream);
    case graph::ReduceKind::kMin: return reduce<T, MinOf, Y>(op, stream);
    case graph::ReduceKind::kProduct: return reduce<T, ProductOf, Y>(op, stream);
  }
}

void run(const graph::OpCall& call) {
  by_type<graph::ReduceForward>(call, [&]<typename T>(const auto& op) {
    if (is_column_sum(op)) {
      column_sum(op.x,
                 op.loops.reduced.count,
                 op.loops.kept.count,
                 op.loops.reduced.strides[0],
                 false,
                 static_cast<float*>(op.y),
                 op.workspace,
                 context_of(call));
    } else if (op.wide) {
      reduce<T, float>(op, stream_of(call));
    } else {
      reduce<T, T>(op, stream_of(call));
    }
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, reduce_workspace>(graph::OpKind::kReduce, "native")};

}  // namespace

constinit const exec::Implementations kCudaReduce = kRows;

}  // namespace lockstep::cuda

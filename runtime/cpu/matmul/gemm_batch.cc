#include "runtime/cpu/matmul/gemm_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/matmul/rounded_blocks.h"
#include "runtime/cpu/stored.h"

// A task is one product, or one of several pieces of a product if that balances the threads better.
#ifndef LOCKSTEP_RUNTIME_CPU_GEMM_BATCH_TASKS
#define LOCKSTEP_RUNTIME_CPU_GEMM_BATCH_TASKS
namespace lockstep::cpu {
struct BatchTasks {
  BatchTasks(const graph::BatchedProducts& sizes, int max_threads) {
    const int64_t work =
        sizes.products.count() * sizes.sums.count() * product_work(sizes.m, sizes.n, sizes.k);
    threads = threads_worth(max_threads, work);
    constexpr int64_t kBalancedProducts =
        8;  // products per thread, above which balance is good enough
    const int64_t products = sizes.products.count();
    const int64_t pieces =
        products >= kBalancedProducts * threads ? 1 : threads / std::gcd(products, threads);
    grid = arrange_workers(pieces, sizes.m, sizes.n, sizes.k * sizes.sums.count());
    count = products * grid.workers();
  }

  int64_t threads;
  WorkerGrid grid;  // over one product
  int64_t count;
};

// The scratch memory of a worker.
template <typename T>
using BatchScratch = std::conditional_t<std::is_same_v<T, float>, GemmScratch, RoundedBlocks>;
}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/gemm_batch.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/matmul/rounded_blocks-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The operands of the terms number `sum` of a product.
template <typename T>
HWY_INLINE Operands operands_of(const graph::BatchedMatmul<T>& op,
                                const graph::ProductLoops::Place& at,
                                int64_t sum) {
  const graph::BatchedProducts& sizes = op.sizes;
  const graph::ProductLoops::Place from = sizes.sums.place(sum);
  return {.a = {op.a + at.a + from.a, sizes.transpose_a ? sizes.m : sizes.k, sizes.transpose_a},
          .b = {op.b + at.b + from.b, sizes.transpose_b ? sizes.k : sizes.n, sizes.transpose_b}};
}

// Computes the given rows and columns of one product.
void batch_piece(const graph::BatchedMatmul<float>& op,
                 const graph::ProductLoops::Place& at,
                 Range rows,
                 Range columns,
                 const GemmScratch& scratch,
                 float* workspace) {
  const graph::BatchedProducts& sizes = op.sizes;
  float* const y = op.y + at.y;
  for (int64_t sum = 0; sum < sizes.sums.count(); ++sum) {
    const auto [a, b] = operands_of(op, at, sum);
    multiply_rectangle({.rows = sizes.m,
                        .columns = sizes.n,
                        .depth = sizes.k,
                        .a = a,
                        .b = b,
                        .c = y,
                        .c_stride = sizes.n,
                        .accumulate = sum > 0},
                       rows,
                       columns,
                       workspace,
                       workspace + scratch.packed_a);
  }
  if (op.scale == 1) return;
  const Vec scale = set(op.scale);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    float* const row = y + i * sizes.n + columns.begin;
    for_each_vector(columns.size(), [&](size_t j, auto access) HWY_ATTR {
      access.store(hn::Mul(access.load(row + j), scale), row + j);
    });
  }
}

void batch_piece(const graph::BatchedMatmul<BFloat16>& op,
                 const graph::ProductLoops::Place& at,
                 Range rows,
                 Range columns,
                 const RoundedBlocks& blocks,
                 float* workspace) {
  const Vec scale = set(op.scale);
  multiply_rounded(
      blocks,
      rows,
      columns,
      op.sizes.sums.count(),
      [&](int64_t sum) { return operands_of(op, at, sum); },
      workspace,
      [&](const float* sums, Range some_rows, Range some_columns) HWY_ATTR {
        for (int64_t i = some_rows.begin; i < some_rows.end; ++i, sums += blocks.sum_stride) {
          BFloat16* const to = op.y + at.y + i * op.sizes.n + some_columns.begin;
          for_each_vector(some_columns.size(), [&](size_t j, auto access) HWY_ATTR {
            access.store(hn::Mul(access.load(sums + j), scale), to + j);
          });
        }
      });
}

template <typename T>
void multiply_batch(const graph::BatchedMatmul<T>& op) {
  const graph::BatchedProducts& sizes = op.sizes;
  const BatchTasks tasks(sizes, compute_threads());
  const int64_t threads = tasks.threads;
  const WorkerGrid grid = tasks.grid;
  const BatchScratch<T> scratch(sizes.m, sizes.n, sizes.k, grid);
  for_each_worker(threads, [&](int64_t worker) HWY_ATTR {
    float* const mine = reinterpret_cast<float*>(op.workspace) + worker * scratch.floats();
    for (int64_t task = tasks.count * worker / threads; task < tasks.count * (worker + 1) / threads;
         ++task) {
      const int64_t piece = task % grid.workers();
      batch_piece(op,
                  sizes.products.place(task / grid.workers()),
                  share(sizes.m, kRowUnit, piece / grid.columns, grid.rows),
                  share(sizes.n, kMaxPanel, piece % grid.columns, grid.columns),
                  scratch,
                  mine);
    }
  });
}

void gemm_batch_kernel(AnyStored<graph::BatchedMatmul> stored) {
  stored.with([](const auto& op) HWY_ATTR { multiply_batch(op); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gemm_batch_kernel);

namespace {

bool has_results(const graph::BatchedProducts& sizes) {
  return sizes.m > 0 && sizes.n > 0 && sizes.products.count() > 0;
}
bool has_terms(const graph::BatchedProducts& sizes) {
  return sizes.k > 0 && sizes.sums.count() > 0;
}

}  // namespace

template <typename T>
int64_t gemm_batch_workspace_bytes(const graph::BatchedProducts& sizes, int threads) {
  if (!has_results(sizes) || !has_terms(sizes)) return 0;
  const BatchTasks tasks(sizes, threads);
  const BatchScratch<T> scratch(sizes.m, sizes.n, sizes.k, tasks.grid);
  return tasks.threads * scratch.floats() * static_cast<int64_t>(sizeof(float));
}

template int64_t gemm_batch_workspace_bytes<float>(const graph::BatchedProducts&, int);
template int64_t gemm_batch_workspace_bytes<BFloat16>(const graph::BatchedProducts&, int);

template <typename T>
void gemm_batch(const graph::BatchedMatmul<T>& op) {
  const graph::BatchedProducts& sizes = op.sizes;
  if (!has_results(sizes)) return;
  if (!has_terms(sizes)) {
    std::memset(op.y, 0, sizes.products.count() * sizes.m * sizes.n * sizeof(T));
    return;
  }
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(op.workspace) % 64 == 0);
  HWY_DYNAMIC_DISPATCH(gemm_batch_kernel)(op);
}
template void gemm_batch(const graph::BatchedMatmul<float>&);
template void gemm_batch(const graph::BatchedMatmul<BFloat16>&);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

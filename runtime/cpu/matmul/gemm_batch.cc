#include "runtime/cpu/matmul/gemm_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

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
}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/gemm_batch.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Computes the given rows and columns of one product.
void batch_piece(const graph::BatchedMatmul<float>& op,
                 const graph::ProductLoops::Place& at,
                 Range rows,
                 Range columns,
                 const GemmScratch& scratch,
                 float* workspace) {
  const graph::BatchedProducts& sizes = op.sizes;
  float* const y = op.y + at.y;
  const int64_t sums = sizes.sums.count();
  for (int64_t sum = 0; sum < sums; ++sum) {
    const graph::ProductLoops::Place from = sizes.sums.place(sum);
    multiply_rectangle(
        {.rows = sizes.m,
         .columns = sizes.n,
         .depth = sizes.k,
         .a = {op.a + at.a + from.a, sizes.transpose_a ? sizes.m : sizes.k, sizes.transpose_a},
         .b = {op.b + at.b + from.b, sizes.transpose_b ? sizes.k : sizes.n, sizes.transpose_b},
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

void gemm_batch_kernel(const graph::BatchedMatmul<float>& op) {
  const graph::BatchedProducts& sizes = op.sizes;
  const BatchTasks tasks(sizes, compute_threads());
  const int64_t threads = tasks.threads;
  const WorkerGrid grid = tasks.grid;
  const GemmScratch scratch(sizes.m, sizes.n, sizes.k, grid);
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

int64_t gemm_batch_workspace_bytes(const graph::BatchedProducts& sizes, int threads) {
  if (!has_results(sizes) || !has_terms(sizes)) return 0;
  const BatchTasks tasks(sizes, threads);
  const GemmScratch scratch(sizes.m, sizes.n, sizes.k, tasks.grid);
  return tasks.threads * scratch.floats() * static_cast<int64_t>(sizeof(float));
}

void gemm_batch(const graph::BatchedMatmul<float>& op) {
  const graph::BatchedProducts& sizes = op.sizes;
  if (!has_results(sizes)) return;
  if (!has_terms(sizes)) {
    std::memset(op.y, 0, sizes.products.count() * sizes.m * sizes.n * sizeof(float));
    return;
  }
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(op.workspace) % 64 == 0);
  HWY_DYNAMIC_DISPATCH(gemm_batch_kernel)(op);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

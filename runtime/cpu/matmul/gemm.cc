#include "runtime/cpu/matmul/gemm.h"

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

// The outer loops of a product. A block of rows of A stays in the second-level cache while it is
// multiplied with the panels of B (a depth block of 32 columns), one after the other. The next one
// is packed or prefetched meanwhile. If there are more blocks of rows, the packed panels of a chunk
// of B are kept for them. Each worker does this alone for its rectangle of C, so there are no
// barriers and nothing is shared. gemm_block.cc has the inner loops.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

HWY_NOINLINE void multiply_rectangle(const Gemm& p,
                                     Range rows,
                                     Range columns,
                                     float* packed_a,
                                     float* packed_b,
                                     const Finish* finish) {
  const int64_t column_step = column_chunk(std::min(p.depth, kDepthChunk));
  for (int64_t j = columns.begin; j < columns.end; j += column_step) {
    const int64_t chunk_columns = std::min(columns.end - j, column_step);
    for (int64_t chunk = 0; chunk < p.depth; chunk += kDepthChunk) {
      const DepthBlocks blocks(std::min(p.depth - chunk, kDepthChunk));
      const int64_t step = block_rows(rows.size(), blocks.length, columns.size());
      const bool keep = rows.size() > step;
      for (int64_t i = rows.begin; i < rows.end; i += step) {
        const int64_t some_rows = std::min(rows.end - i, step);
        for (int64_t index = 0; index < blocks.count(); ++index) {
          const Range block = blocks.range(index);
          const int64_t k = chunk + block.begin;
          const bool finishes = finish != nullptr && chunk + block.end == p.depth;
          const BlockFinish of_block{.finish = finish, .rows = {i, i + some_rows}, .column = j};
          float* const buffer =
              packed_b + (keep ? block.begin * round_up(chunk_columns, kVecLanes) : 0);
          const Panels panels{.b = p.b.at(k, j),
                              .ready = i > rows.begin ? buffer : nullptr,
                              .buffer = buffer,
                              .keep = keep,
                              .in_place = some_rows <= kFewRows};
          multiply_block(some_rows,
                         chunk_columns,
                         block.size(),
                         p.a.at(i, k),
                         panels,
                         Result{p.c + i * p.c_stride + j,
                                static_cast<size_t>(p.c_stride),
                                /*padded=*/false},
                         p.accumulate || k > 0,
                         packed_a,
                         /*rows_packed=*/false,
                         finishes ? &of_block : nullptr);
        }
      }
    }
  }
}

void gemm_kernel(const Gemm& p, float* workspace, const Finish* finish) {
  const WorkerGrid grid = arrange_workers(compute_threads(), p.rows, p.columns, p.depth);
  const GemmScratch scratch(p.rows, p.columns, p.depth, grid);
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    float* const mine = workspace + worker * scratch.floats();
    multiply_rectangle(p,
                       share(p.rows, kRowUnit, worker / grid.columns, grid.rows),
                       share(p.columns, kMaxPanel, worker % grid.columns, grid.columns),
                       mine,
                       mine + scratch.packed_a,
                       finish);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gemm_kernel);

int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads) {
  if (rows == 0 || columns == 0 || depth == 0) return 0;
  const WorkerGrid grid = arrange_workers(threads, rows, columns, depth);
  return grid.workers() * GemmScratch(rows, columns, depth, grid).floats() *
         static_cast<int64_t>(sizeof(float));
}

namespace {
void multiply(const Gemm& p, const Finish* finish, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  if (p.rows == 0 || p.columns == 0) return;
  if (p.depth > 0)
    return HWY_DYNAMIC_DISPATCH(gemm_kernel)(p, static_cast<float*>(workspace), finish);
  for (int64_t i = 0; i < p.rows && !p.accumulate; ++i) {
    std::memset(p.c + i * p.c_stride, 0, p.columns * sizeof(float));
  }
  if (finish != nullptr) finish->run(finish->of, {0, p.rows}, {0, p.columns});
}
}  // namespace

void gemm(const Gemm& p, void* workspace) { multiply(p, nullptr, workspace); }

void gemm_finished(const Gemm& p, const Finish& finish, void* workspace) {
  multiply(p, &finish, workspace);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

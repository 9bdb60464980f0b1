#include "runtime/cpu/gemm.h"

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/gemm_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// One worker's rectangle of the result, over one chunk of the depth that begins at chunk_begin.
// `packed` has the panels of the chunk for columns from packed_column on, or is null.
HWY_NOINLINE void multiply_rectangle(const Gemm& p,
                                     Range rows,
                                     Range columns,
                                     int64_t chunk_begin,
                                     DepthBlocks blocks,
                                     const float* packed,
                                     int64_t packed_column,
                                     int64_t packed_columns,
                                     float* scratch) {
  for (int64_t i = rows.begin; i < rows.end; i += kStripRows) {
    const int64_t strip_rows = std::min(rows.end - i, kStripRows);
    for (int64_t index = 0; index < blocks.count(); ++index) {
      const Range block = blocks.range(index);
      const int64_t k = chunk_begin + block.begin;
      const float* panels = packed == nullptr
                                ? nullptr
                                : packed + block.begin * round_up(packed_columns, kVecLanes) +
                                      (columns.begin - packed_column) * block.size();
      multiply_strip(strip_rows,
                     columns.size(),
                     block.size(),
                     p.a.at(i, k),
                     Panels{.b = p.b.at(k, columns.begin), .packed = panels},
                     Result{p.c + i * p.c_stride + columns.begin,
                            static_cast<size_t>(p.c_stride),
                            /*padded=*/false},
                     p.accumulate || k > 0,
                     scratch);
    }
  }
}

void gemm_kernel(const Gemm& p, float* workspace) {
  const WorkerGrid grid =
      arrange_workers(compute_threads(), ceil_div(p.rows, kTileRows), ceil_div(p.columns, kPanel));
  // Panels that several strips use are packed once, by all workers; others when they are needed.
  const bool shared = p.rows > kStripRows;
  float* const packed = shared ? workspace : nullptr;
  float* const scratch = workspace + packed_panel_floats(p.rows, p.columns, p.depth);
  const int64_t column_chunk = shared ? kColumnChunk : p.columns;
  const int64_t depth_chunk = shared ? kDepthChunk : p.depth;
  for (int64_t j = 0; j < p.columns; j += column_chunk) {
    const int64_t chunk_columns = std::min(p.columns - j, column_chunk);
    for (int64_t k = 0; k < p.depth; k += depth_chunk) {
      const DepthBlocks blocks(std::min(p.depth - k, depth_chunk));
      if (shared) {
        for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
          pack_panels(p.b.at(k, j), chunk_columns, blocks, packed, worker, grid.workers());
        });
      }
      for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
        const Range rows = share(p.rows, kTileRows, worker / grid.columns, grid.rows);
        Range columns = share(chunk_columns, kPanel, worker % grid.columns, grid.columns);
        columns = {columns.begin + j, columns.end + j};
        multiply_rectangle(p,
                           rows,
                           columns,
                           k,
                           blocks,
                           packed,
                           j,
                           chunk_columns,
                           scratch + worker * (kStripScratch + kPanelScratch));
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gemm_kernel);

int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads) {
  return (packed_panel_floats(rows, columns, depth) + threads * (kStripScratch + kPanelScratch)) *
         static_cast<int64_t>(sizeof(float));
}

void gemm(const Gemm& p, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  if (p.rows == 0 || p.columns == 0) return;
  if (p.depth == 0) {
    for (int64_t i = 0; i < p.rows && !p.accumulate; ++i) {
      std::memset(p.c + i * p.c_stride, 0, p.columns * sizeof(float));
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(gemm_kernel)(p, static_cast<float*>(workspace));
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

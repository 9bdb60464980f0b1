// Products of blocks that fit into the cache, defined for each instruction set in gemm_block.cc,
// which explains them. Include it only from a .cc file that Highway's foreach_target.h includes
// repeatedly. The tile kernel is in gemm_tile.cc.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
#undef LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/matmul/gemm_pack-inl.h"
#include "runtime/cpu/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The panels of one depth block of B.
struct Panels {
  GemmOperand b;                 // the block within B; unused when `ready`
  const float* ready = nullptr;  // depth x kPanel panels, contiguous; the last may be narrower
  float* buffer = nullptr;       // where panels are packed ...
  bool keep = false;             // ... one after the other; otherwise in two places in turn
  bool in_place = false;         // read b directly; only a last, partial panel is packed
};

// The destination. A padded buffer may be written up to full vectors.
struct Result {
  float* data;
  size_t stride;
  bool padded;
};

// The finish of a block of some rows, which begins at this column of the result.
struct BlockFinish {
  const Finish* finish;
  Range rows;
  int64_t column;
  HWY_INLINE void run(Range columns) const {
    finish->run(finish->of, rows, {column + columns.begin, column + columns.end});
  }
};

// c(rows, columns) (+)= a(rows, depth) b(depth, columns), depth <= kDepthBlock. `packed_a` has room
// for rows * depth floats and one vector; it is used if rows are packed, or has them already
// (rows_packed: a says only whether they were transposed). Each panel is multiplied with all rows
// before the next one. `finish`: for the sums of this block, which are then complete; or null.
void multiply_block(size_t rows,
                    size_t columns,
                    size_t depth,
                    GemmOperand a,
                    const Panels& panels,
                    Result c,
                    bool accumulate,
                    float* packed_a,
                    bool rows_packed = false,
                    const BlockFinish* finish = nullptr);

// Computes one worker's rectangle of a product whose depth is above 0 (defined in gemm.cc). The
// scratch memory is described by GemmScratch.
void multiply_rectangle(const Gemm& p,
                        Range rows,
                        Range columns,
                        float* packed_a,
                        float* packed_b,
                        const Finish* finish = nullptr);

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_GEMM_INL_H

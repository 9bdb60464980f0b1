// Computes a product by the blocks of rounded_blocks.h. Compiled once per instruction set: include
// it only from a .cc file that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_ROUNDED_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_ROUNDED_BLOCKS_INL_H
#undef LOCKSTEP_RUNTIME_CPU_ROUNDED_BLOCKS_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_ROUNDED_BLOCKS_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/bf16_dot.h"
#include "runtime/cpu/matmul/flush_to_zero.h"
#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/matmul/rounded_blocks.h"
#include "runtime/cpu/matmul/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Whether multiply_block() multiplies pairs of bfloat16.
HWY_INLINE bool multiplies_pairs([[maybe_unused]] int64_t depth) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return depth % 2 == 0 && bf16_dot_kernels() != nullptr;
#else
  return false;
#endif
}

// Rows of A for multiply_block(), with few columns of B: in floats, if it would widen and transpose
// them, which takes longer. Then its sums have the same bits while FlushToZero lives.
HWY_INLINE GemmOperand
rows_for_few_columns(GemmOperand a, int64_t rows, int64_t depth, float* to, int64_t stride) {
  if (a.halves == nullptr || a.transposed || multiplies_pairs(depth)) return a;
  for (int64_t i = 0; i < rows; ++i)
    copy_as_floats(a.halves + i * a.stride, static_cast<size_t>(depth), to + i * stride);
  return {to, stride};
}

// The operands of one of several products that are summed.
struct Operands {
  GemmOperand a, b;  // (rows, depth), (depth, columns) of the full product
};

// Computes `rows` x `columns` of the sum of `terms` products, whose operands operands(term)
// returns. Calls finish(sums, rows, columns) for each block; its sums are at sums[i * sum_stride +
// j] for row i and column j of the block.
template <typename OperandsOf, typename Finish>
HWY_INLINE void multiply_rounded(const RoundedBlocks& sizes,
                                 Range rows,
                                 Range columns,
                                 int64_t terms,
                                 const OperandsOf& operands,
                                 float* scratch,
                                 const Finish& finish) {
  float* const sums = scratch;
  float* const packed_a = sums + sizes.sums;
  float* const packed_b = packed_a + sizes.a;
  const bool keep = sizes.keeps && terms == 1;
  const int64_t depth = sizes.depth.depth;
  const bool pack = sizes.together > 0 && terms == 1 && !multiplies_pairs(depth);
  const int64_t step = pack ? sizes.together : rows.size();
  for (int64_t begin = rows.begin; begin < rows.end; begin += step) {
    const Range part{begin, std::min(rows.end, begin + step)};
    for (int64_t n = columns.begin; n < columns.end; n += sizes.columns) {
      const Range some_columns{n, std::min(columns.end, n + sizes.columns)};
      for (int64_t m = part.begin; m < part.end; m += sizes.rows) {
        const Range some_rows{m, std::min(part.end, m + sizes.rows)};
        for (int64_t term = 0; term < terms; ++term) {
          const Operands of = operands(term);
          for (int64_t index = 0; index < sizes.depth.count(); ++index) {
            const Range block = sizes.depth.range(index);
            GemmOperand a = of.a.at(m, block.begin);
            float* rows_of_a = packed_a;
            if (pack) {
              rows_of_a += (m - begin) * depth + block.begin * some_rows.size();
              if (n == columns.begin) pack_rows(a, some_rows.size(), block.size(), rows_of_a);
            } else {
              a = rows_for_few_columns(a, some_rows.size(), block.size(), packed_a, sizes.a_stride);
            }
            float* const buffer =
                packed_b + (keep ? block.begin * round_up(some_columns.size(), kVecLanes) : 0);
            const FlushToZero flush;
            multiply_block(some_rows.size(),
                           some_columns.size(),
                           block.size(),
                           a,
                           Panels{.b = of.b.at(block.begin, n),
                                  .ready = keep && m > begin ? buffer : nullptr,
                                  .buffer = buffer,
                                  .keep = keep},
                           Result{sums, static_cast<size_t>(sizes.sum_stride), /*padded=*/true},
                           term > 0 || index > 0,
                           rows_of_a,
                           /*rows_packed=*/pack);
          }
        }
        finish(sums, some_rows, some_columns);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_ROUNDED_BLOCKS_INL_H

#pragma once
// Products of bfloat16 by AVX512-BF16. Its instruction VDPBF16PS adds two products to each sum, one
// after the other, with the roundings of two fused multiply-adds, and takes numbers below 2^-126
// for zero. So a sum has the bits of a chain of fused multiply-adds (gemm.h) if these flush such
// numbers, too: see FlushToZero. The instruction takes the upper halves of a pair first; hence a
// pair has element k in its upper half and k + 1 in its lower half.

#include <cstddef>
#include <cstdint>

#include "runtime/cpu/matmul/gemm.h"

namespace lockstep::cpu {

struct Bf16DotKernels {
  static constexpr size_t kTileRows = 12, kTileColumns = 32;

  // A column of tiles: c(tiles * rows, 16 * vectors) = (accumulate ? c : 0) + a b.
  struct Tiles {
    size_t tiles, rows, vectors;
    size_t pairs;       // half of the depth
    const uint32_t* a;  // [tile][pair][row]
    const uint32_t* b;  // [pair][16 * vectors]
    float* c;
    size_t c_stride;
    bool accumulate;
  };

  // Packs rows of A in tiles of kTileRows; the last one may have fewer. `depth` is even. May write
  // 16 pairs past the end.
  void (*pack_rows)(GemmOperand a, size_t rows, size_t depth, uint32_t* to);
  // Packs up to kTileColumns columns of B, padded with zeros to a multiple of 16.
  void (*pack_panel)(GemmOperand b, size_t columns, size_t depth, uint32_t* to);
  void (*multiply)(const Tiles& tiles);
};

// The kernels, if products are to use them: if the processor has them, a trial finds that they give
// the bits of fused multiply-adds, and it is AMD's. On Intel's Xeons (measured on Emerald Rapids)
// the instruction computes half as much a second as fused multiply-adds do; on Zen 4, by published
// tables, twice as much.
const Bf16DotKernels* bf16_dot_kernels();

// While it lives, products use the kernels wherever they give the bits. For tests.
class ScopedBf16Dot {
 public:
  ScopedBf16Dot();
  ~ScopedBf16Dot();
  ScopedBf16Dot(const ScopedBf16Dot&) = delete;
  ScopedBf16Dot& operator=(const ScopedBf16Dot&) = delete;
  static bool available();

 private:
  const Bf16DotKernels* before_;
};

}  // namespace lockstep::cpu

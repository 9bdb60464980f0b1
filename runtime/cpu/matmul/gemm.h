#pragma once
// Dense matrix products in single precision with fixed bits.
//
// Every element of a result is one chain of fused multiply-adds over the depth index in increasing
// order, which starts from zero, or from the element's old value when accumulating. Blocking stores
// and reloads the partial chain, which does not round. Hence the bits depend only on the operands:
// not on threads, blocking, position, the other rows, or the instruction set. (Plain x86-64 has no
// fused multiply-add and rounds twice; AVX2 and AVX-512 agree.)

#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

// A row-major matrix of an operand: element (i, j) is data[i * stride + j], or data[j * stride + i]
// if it is stored transposed. `stride` is in elements. Elements are floats, or bfloat16, which are
// widened while they are packed.
struct GemmOperand {
  GemmOperand() = default;
  GemmOperand(const float* data, int64_t stride, bool transposed = false)
      : data(data), stride(stride), transposed(transposed) {}
  GemmOperand(const BFloat16* halves, int64_t stride, bool transposed = false)
      : halves(halves), stride(stride), transposed(transposed) {}

  // The part that begins at element (i, j).
  GemmOperand at(int64_t i, int64_t j) const {
    const int64_t offset = transposed ? j * stride + i : i * stride + j;
    if (halves != nullptr) return {halves + offset, stride, transposed};
    return {data + offset, stride, transposed};
  }

  const float* data = nullptr;
  const BFloat16* halves = nullptr;  // instead of data
  int64_t stride = 0;
  bool transposed = false;
};

// c = a b, or c += a b. No operand may overlap c.
struct Gemm {
  int64_t rows, columns, depth;  // each >= 0; depth 0 gives zeros, or leaves c when accumulating
  GemmOperand a;                 // (rows, depth)
  GemmOperand b;                 // (depth, columns)
  float* c;                      // (rows, columns)
  int64_t c_stride;              // elements between rows of c
  bool accumulate = false;
};

// What is done with complete sums while they are still in the cache.
struct Finish {
  // Reads the sums of some rows and columns in the product's result, and may overwrite them.
  void (*run)(const void* of, Range rows, Range columns);
  const void* of;
  // What run() reads, and what it writes beside the result, laid out like the result; or null. They
  // are prefetched while the sums are computed.
  GemmOperand reads, writes;
};

// Returns the scratch memory, in bytes, that gemm() needs for a product of this size on `threads`
// threads; the same on every machine.
int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads);

// Computes the product on compute_threads() threads. `workspace` is aligned to 64 bytes and has
// gemm_workspace_bytes(..., compute_threads()) bytes; its contents are overwritten. Does not
// allocate.
void gemm(const Gemm& product, void* workspace);
// The same, with `finish` applied to the result.
void gemm_finished(const Gemm& product, const Finish& finish, void* workspace);

}  // namespace lockstep::cpu

#include "runtime/cpu/matmul/bf16x3_gemm.h"

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/bf16x3_operands.h"

namespace lockstep::cpu::bf16x3 {

int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads) {
  return split_workspace_bytes(rows, columns, ceil_div(depth, kTileDepth), threads);
}

void gemm(const Gemm& p, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  if (p.rows == 0 || p.columns == 0) return;
  if (p.depth == 0) {
    for (int64_t i = 0; i < p.rows && !p.accumulate; ++i)
      std::memset(p.c + i * p.c_stride, 0, static_cast<size_t>(p.columns) * sizeof(float));
    return;
  }
  multiply_all(DenseA<float>{p.a, p.depth},
               DenseB<float>{p.b, p.depth},
               DenseC{p.c, p.c_stride},
               p.rows,
               p.columns,
               ceil_div(p.depth, kTileDepth),
               p.accumulate,
               workspace);
}

}  // namespace lockstep::cpu::bf16x3

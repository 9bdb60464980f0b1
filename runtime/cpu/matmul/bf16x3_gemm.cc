#include "runtime/cpu/matmul/bf16x3_gemm.h"

#include "runtime/cpu/matmul/bf16x3_operands.h"

namespace lockstep::cpu::bf16x3 {

int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads) {
  return split_workspace_bytes(rows, columns, ceil_div(depth, kTileDepth), threads);
}

void gemm(const Gemm& p, void* workspace) { multiply_matrices<float>(p, workspace); }

}  // namespace lockstep::cpu::bf16x3

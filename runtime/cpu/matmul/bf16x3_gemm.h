#pragma once
// Dense matrix products of floats, computed as described in bf16x3.h. The bits of an element depend
// only on its row of A and its column of B.

#include <cstdint>

#include "runtime/cpu/matmul/gemm.h"

namespace lockstep::cpu::bf16x3 {

// Same contracts as in gemm.h.
int64_t gemm_workspace_bytes(int64_t rows, int64_t columns, int64_t depth, int threads);
void gemm(const Gemm& product, void* workspace);

}  // namespace lockstep::cpu::bf16x3

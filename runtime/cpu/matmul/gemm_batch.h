#pragma once
// Many products of one size, those of gemm.h: each result is one chain of fused multiply-adds,
// which goes on over the products that are summed, and is then scaled.

#include <cstdint>

#include "runtime/graph/ops/batched_matmul.h"

namespace lockstep::cpu {

// Scratch memory that gemm_batch() needs on so many threads.
int64_t gemm_batch_workspace_bytes(const BatchedProducts& sizes, int threads);

// Computes y on compute_threads() threads. op.workspace is aligned to 64 bytes. Does not allocate.
void gemm_batch(const BatchedMatmul<float>& op);

}  // namespace lockstep::cpu

#pragma once
// Many products of the same size, as in gemm.h. Each result is one chain of fused multiply-adds,
// which continues over the products that are summed, and is then scaled.

#include <cstdint>

#include "runtime/graph/ops/batched_matmul.h"

namespace lockstep::cpu {

// Returns the scratch memory, in bytes, that gemm_batch() needs on `threads` threads. T: what
// tensors store, float or BFloat16.
template <typename T>
int64_t gemm_batch_workspace_bytes(const graph::BatchedProducts& sizes, int threads);

// Computes y on compute_threads() threads. op.workspace is aligned to 64 bytes. Does not allocate.
template <typename T>
void gemm_batch(const graph::BatchedMatmul<T>& op);

}  // namespace lockstep::cpu

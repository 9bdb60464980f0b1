// Batched matrix products by the kernels of matmul/.
#include "runtime/graph/ops/batched_matmul.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_batch.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

size_t workspace_bytes(const graph::OpCall& call) {
  return static_cast<size_t>(
      gemm_batch_workspace_bytes(graph::BatchedMatmul<float>{call}.sizes, compute_threads()));
}

void run(const graph::OpCall& call) { gemm_batch(graph::BatchedMatmul<float>{call}); }

constexpr exec::Implementation kRows[] = {
    row<run, workspace_bytes>(graph::OpKind::kBatchedMatmul, "gemm")};

}  // namespace

constinit const exec::Implementations kCpuBatchedMatmul = kRows;

}  // namespace lockstep::cpu

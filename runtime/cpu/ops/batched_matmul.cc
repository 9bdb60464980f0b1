// Batched matrix products by the kernels of matmul/.
#include "runtime/graph/ops/batched_matmul.h"

#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_batch.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

size_t workspace_bytes(const graph::OpCall& call) {
  const graph::BatchedProducts sizes = graph::BatchedMatmul<float>{call}.sizes;
  const auto bytes =
      stores_bf16(call) ? gemm_batch_workspace_bytes<BFloat16> : gemm_batch_workspace_bytes<float>;
  return static_cast<size_t>(bytes(sizes, compute_threads()));
}

constexpr exec::Implementation kRows[] = {
    native_row<gemm_batch<float>, gemm_batch<BFloat16>, workspace_bytes>(
        graph::OpKind::kBatchedMatmul, "gemm")};

}  // namespace

constinit const exec::Implementations kCpuBatchedMatmul = kRows;

}  // namespace lockstep::cpu

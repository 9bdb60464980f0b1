#include "runtime/cpu/matmul/linear_bf16x3.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/cpu/matmul/bf16x3_gemm.h"
#include "runtime/cpu/matmul/bf16x3_operands.h"

namespace lockstep::cpu::bf16x3 {
namespace {

// A result whose epilogue is applied while the sums are in the cache.
struct LinearResult {
  float* row(int64_t i) const { return op.y + i * op.shape.outputs; }
  int64_t stride() const { return op.shape.outputs; }
  void finish(Range rows, Range columns) const { finish_sums(op, rows, columns); }
  const LinearProduct<float>& op;
};

}  // namespace

int64_t linear_workspace_bytes(const graph::LinearShape& shape, int threads) {
  const auto [m, k, n] = shape;
  return std::max({gemm_workspace_bytes(m, n, k, threads),
                   gemm_workspace_bytes(m, k, n, threads),
                   gemm_workspace_bytes(n, k, m, threads)});
}

void linear_forward(const LinearProduct<float>& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  const auto [m, k, n] = op.shape;
  if (m == 0 || n == 0) return;
  LOCKSTEP_CHECK(k > 0);
  multiply_all(DenseA<float>{op.x, k},
               DenseB<float>{{op.w.data, op.w.stride, !op.w.transposed}, k},
               LinearResult{op},
               m,
               n,
               ceil_div(k, kTileDepth),
               /*accumulate=*/false,
               workspace);
}

void linear_backward_weight(const graph::LinearBackward<float>& op) {
  bf16x3::gemm(product_for_weight(op), op.workspace);
}

}  // namespace lockstep::cpu::bf16x3

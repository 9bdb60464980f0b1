// The products of matmul/ and the loss of softmax_cross_entropy.cc, chunk by chunk. A weight's
// gradient is one chain of sums over all rows, as without chunks, where the products are those of
// gemm.h.
#include "runtime/graph/ops/linear_cross_entropy.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/linear_kernels.h"
#include "runtime/cpu/ops/softmax_cross_entropy.h"

namespace lockstep::cpu {
namespace {

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The parts of the workspace, in bytes from its beginning.
struct Workspace {
  size_t rows, products, end;  // of LossRow, and what the products work in; the logits come first
};

template <const LinearKernels& kKernels>
Workspace workspace_of(const LinearCrossEntropy<float>& op) {
  const LinearShape chunk = {op.chunk_rows(), op.shape.inputs, op.shape.outputs};
  const LinearShape last = {op.rows_of(op.chunks() - 1), op.shape.inputs, op.shape.outputs};
  const int threads = compute_threads();
  const auto products = static_cast<size_t>(
      std::max(kKernels.workspace_bytes(chunk, threads), kKernels.workspace_bytes(last, threads)));
  Workspace at = {};
  at.rows = aligned(static_cast<size_t>(chunk.rows * op.attributes.stride) * sizeof(float));
  at.products = at.rows + aligned(loss_workspace_bytes(op.shape.rows));
  at.end = at.products + products;
  return at;
}

template <const LinearKernels& kKernels>
size_t workspace_bytes(const OpCall& call) {
  return workspace_of<kKernels>(LinearCrossEntropy<float>::of(call)).end;
}

template <const LinearKernels& kKernels>
void run(const OpCall& call) {
  const auto op = LinearCrossEntropy<float>::of(call);
  const Workspace at = workspace_of<kKernels>(op);
  auto* const logits = call.workspace<float>();
  auto* const results = reinterpret_cast<LossRow*>(call.workspace() + at.rows);
  std::byte* const work = call.workspace() + at.products;
  for (int64_t chunk = 0; chunk < op.chunks(); ++chunk) {
    const auto forward = op.forward_of(chunk, logits, work);
    kKernels.forward({.shape = forward.shape,
                      .x = forward.x,
                      .w = forward.weight,
                      .epilogue = {.bias = forward.bias, .activation = Activation::kNone},
                      .pre = nullptr,
                      .y = logits},
                     work);
    softmax_cross_entropy_rows(
        op.loss_of(chunk, logits), call.lane(), results + chunk * op.chunk_rows());
    if (op.d_x == nullptr) continue;
    const auto backward = op.backward_of(chunk, logits, work);
    // Before d_x, which may be x.
    if (op.d_weight != nullptr) kKernels.backward_weight(backward);
    if (op.d_bias != nullptr) linear_backward_bias(backward);
    kKernels.backward_input(backward);
  }
  sum_loss_rows(results, op.shape.rows, op.statistics);
}

// Rows of logits are padded for GPUs alone.
bool supports(const OpCall& call) {
  const auto op = LinearCrossEntropy<float>::of(call);
  return op.attributes.stride == op.shape.outputs;
}
bool supports_bf16x3(const OpCall& call) { return call.bf16x3() && supports(call); }

constexpr Implementation kRows[] = {
    {OpKind::kLinearCrossEntropy,
     "bf16x3",
     run<kLinearBf16x3>,
     workspace_bytes<kLinearBf16x3>,
     supports_bf16x3},
    {OpKind::kLinearCrossEntropy, "gemm", run<kLinear>, workspace_bytes<kLinear>, supports},
};

}  // namespace

constinit const Implementations kCpuLinearCrossEntropy = kRows;

}  // namespace lockstep::cpu

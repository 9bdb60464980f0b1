// cuBLASLt products and the loss of softmax_cross_entropy.cu, chunk by chunk. Products for which
// cuBLASLt has no algorithm use the plain kernel.
#include "runtime/graph/ops/linear_cross_entropy.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/multiply.h"
#include "runtime/cuda/ops/softmax_cross_entropy.h"
#include "runtime/cuda/plan/losses.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

using AnyType = graph::LinearCrossEntropy<std::byte>;

// The products of a chunk.
struct Products {
  Product logits, d_weight, d_x;
};
Products products_of(const graph::OpCall& call, int64_t chunk) {
  const AnyType op{call};
  const DType dtype = call.input_dtype(graph::LinearCrossEntropyIn::kX);
  const bool tf32 = context_of(call).tf32;
  const int64_t rows = op.rows_of(chunk), stride = op.attributes.stride;
  return {
      .logits = {.m = rows,
                 .n = op.padded_outputs,
                 .k = op.shape.inputs,
                 .stride_out = stride,
                 .transpose_b = true,
                 .in = dtype,
                 .out = dtype,
                 .tf32 = tf32,
                 .epilogue = call.has_input(graph::LinearCrossEntropyIn::kBias) ? Epilogue::kBias
                                                                                : Epilogue::kNone},
      .d_weight = {.m = op.padded_outputs,
                   .n = op.shape.inputs,
                   .k = rows,
                   .stride_a = stride,
                   .transpose_a = true,
                   .in = dtype,
                   .out = DType::kF32,
                   .accumulate = op.attributes.accumulate_weight || chunk > 0,
                   .tf32 = tf32},
      .d_x = {.m = rows,
              .n = op.shape.inputs,
              .k = op.padded_outputs,
              .stride_a = stride,
              .in = dtype,
              .out = dtype,
              .tf32 = tf32}};
}

bool has_algorithm(const graph::OpCall& call, const Product& product) {
  Matmul& matmul = *context_of(call).matmul;
  if (matmul.supports(product)) return true;
  warn_once(
      "the output layer and its loss use the native kernel, which is slow: cuBLASLt has no "
      "algorithm for it (" +
      matmul.why_not(product) + ")");
  return false;
}

// Whether every chunk is aligned for cuBLASLt.
bool supports_library(const graph::OpCall& call) {
  const AnyType op{call};
  const int64_t row =
      op.shape.inputs *
      static_cast<int64_t>(size_of(call.input_dtype(graph::LinearCrossEntropyIn::kX)));
  return op.chunks() == 1 || op.chunk_rows() * row % 16 == 0;
}

// Checks the first chunk, the second, which adds to the gradient, and the last, which may be
// shorter.
bool has_algorithms(const graph::OpCall& call) {
  const int64_t last = AnyType{call}.chunks() - 1;
  for (const int64_t chunk : {int64_t{0}, std::min<int64_t>(1, last), last}) {
    const Products products = products_of(call, chunk);
    if (!has_algorithm(call, products.logits)) return false;
    if (call.has_output(graph::LinearCrossEntropyOut::kDX) && !has_algorithm(call, products.d_x))
      return false;
    if (call.has_output(graph::LinearCrossEntropyOut::kDWeight) &&
        !has_algorithm(call, products.d_weight))
      return false;
  }
  return true;
}

template <Multiply kMultiply>
void run(const graph::OpCall& call) {
  const auto parts = LinearCrossEntropyWorkspace::of(call);
  auto* const results = reinterpret_cast<RowLoss*>(call.workspace() + parts.logits);
  auto* const scales = reinterpret_cast<float*>(call.workspace() + parts.logits + parts.losses);
  auto* const sums = scales + parts.scales / sizeof(float);
  by_type<graph::LinearCrossEntropy>(call, [&]<typename T>(graph::LinearCrossEntropy<T> op) {
    T* const logits = call.workspace<T>();
    if (op.d_sums != nullptr) {
      scale_sequence_rows(op.d_sums, op.shape.rows, op.sequence_rows, scales, stream_of(call));
      op.gradient_scales = scales;
    }
    for (int64_t chunk = 0; chunk < op.chunks(); ++chunk) {
      const Products products = products_of(call, chunk);
      const auto forward = op.forward_of(chunk, logits, nullptr);
      kMultiply(
          call, products.logits, {.a = forward.x, .b = op.weight, .out = logits, .bias = op.bias});
      softmax_cross_entropy_rows(
          op.loss_of(chunk, logits), call, results + chunk * op.chunk_rows());
      if (op.d_x == nullptr) continue;
      const auto backward = op.backward_of(chunk, logits, nullptr);
      // d_weight comes first, because d_x may overwrite x.
      if (op.d_weight != nullptr)
        kMultiply(call, products.d_weight, {.a = logits, .b = backward.x, .out = op.d_weight});
      if (op.d_bias != nullptr)
        column_sum<T>(logits,
                      backward.shape.rows,
                      backward.shape.outputs,
                      backward.stride,
                      backward.accumulate_bias,
                      op.d_bias,
                      sums,
                      context_of(call));
      kMultiply(call, products.d_x, {.a = logits, .b = op.weight, .out = backward.d_x});
    }
    if (op.statistics != nullptr)
      sum_row_losses(results, op.shape.rows, op.statistics, stream_of(call));
    if (op.sums != nullptr)
      sum_sequence_rows(results, op.shape.rows, op.sequence_rows, op.sums, stream_of(call));
  });
}

constexpr exec::Implementation of_library(graph::OpKind kind) {
  return exec::row<run<multiply>, linear_cross_entropy_workspace, supports_library, has_algorithms>(
      kind, "cublaslt");
}
constexpr exec::Implementation plain(graph::OpKind kind) {
  return exec::row<run<multiply_plainly>, linear_cross_entropy_workspace>(kind, "plain");
}

constexpr exec::Implementation kRows[] = {
    of_library(graph::OpKind::kLinearCrossEntropy),
    plain(graph::OpKind::kLinearCrossEntropy),
    of_library(graph::OpKind::kSequenceLogProb),
    plain(graph::OpKind::kSequenceLogProb),
    of_library(graph::OpKind::kSequenceLogProbBackward),
    plain(graph::OpKind::kSequenceLogProbBackward),
};

}  // namespace

constinit const exec::Implementations kCudaLinearCrossEntropy = kRows;

}  // namespace lockstep::cuda

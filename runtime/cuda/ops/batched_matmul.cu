// Batches of products as cuBLASLt's strided batches: the longest loop over products is the batch,
// and the other loops queue one batch after another. Products for which cuBLASLt has no algorithm
// use the plain kernel. Sums over products are added in float, one after the other.
#include "runtime/graph/ops/batched_matmul.h"

#include <string>

#include "runtime/base/dtype.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/multiply.h"
#include "runtime/cuda/plan/products.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

// Arrays are passed as bytes; a product gets their type separately.
using Call = graph::BatchedMatmul<std::byte>;

bool has_results(const graph::BatchedProducts& sizes) {
  return sizes.m > 0 && sizes.n > 0 && sizes.products.count() > 0;
}
bool has_terms(const graph::BatchedProducts& sizes) {
  return sizes.k > 0 && sizes.sums.count() > 0;
}

// Batches to queue, for each round of the other loops.
struct Batches {
  explicit Batches(const graph::BatchedProducts& sizes) {
    int longest = 0;
    for (int d = 1; d < sizes.products.rank; ++d) {
      if (sizes.products.loops[d].count > sizes.products.loops[longest].count) longest = d;
    }
    for (int d = 0; d < sizes.products.rank; ++d) {
      if (d == longest) {
        batch = sizes.products.loops[d];
      } else {
        others.loops[others.rank++] = sizes.products.loops[d];
      }
    }
  }

  graph::ProductLoops::Loop batch{1, 0, 0, 0};
  graph::ProductLoops others;
};

Product product_of(const graph::OpCall& call, bool accumulate) {
  const graph::BatchedProducts sizes = Call{call}.sizes;
  const graph::ProductLoops::Loop batch = Batches(sizes).batch;
  return {
      .m = sizes.m,
      .n = sizes.n,
      .k = sizes.k,
      .batch = batch.count,
      .batch_a = batch.a,
      .batch_b = batch.b,
      .batch_out = batch.y,
      .transpose_a = sizes.transpose_a,
      .transpose_b = sizes.transpose_b,
      .in = call.input_dtype(graph::BatchedMatmulIn::kA),
      .out = adds_in_floats(call) ? DType::kF32 : call.output_dtype(graph::BatchedMatmulOut::kY),
      .accumulate = accumulate,
      .tf32 = context_of(call).tf32};
}

template <Multiply kMultiply>
void run(const graph::OpCall& call) {
  const Call op = Call{call};
  if (!has_results(op.sizes)) return;
  const int64_t n = call.output_shape(graph::BatchedMatmulOut::kY).elements();
  if (!has_terms(op.sizes)) {
    return by_type(call.output_dtype(graph::BatchedMatmulOut::kY), [&]<typename T>() {
      fill_zeros(reinterpret_cast<T*>(op.y), n, stream_of(call));
    });
  }
  const bool in_floats = adds_in_floats(call);
  std::byte* const out = in_floats ? op.workspace : op.y;
  const auto in_bytes = static_cast<int64_t>(size_of(call.input_dtype(graph::BatchedMatmulIn::kA))),
             out_bytes = in_floats ? int64_t{4} : in_bytes;
  const Batches batches(op.sizes);
  for (int64_t round = 0; round < batches.others.count(); ++round) {
    const graph::ProductLoops::Place at = batches.others.place(round);
    for (int64_t sum = 0; sum < op.sizes.sums.count(); ++sum) {
      const graph::ProductLoops::Place from = op.sizes.sums.place(sum);
      kMultiply(call,
                product_of(call, sum > 0),
                {.a = op.a + (at.a + from.a) * in_bytes,
                 .b = op.b + (at.b + from.b) * in_bytes,
                 .out = out + at.y * out_bytes,
                 .scale = op.scale});
    }
  }
  if (!in_floats) return;
  by_type(call.output_dtype(graph::BatchedMatmulOut::kY), [&]<typename T>() {
    copy_flat(reinterpret_cast<const float*>(out), reinterpret_cast<T*>(op.y), n, stream_of(call));
  });
}

// cuBLASLt's operands must be aligned to 16 bytes.
bool supports_library(const graph::OpCall& call) {
  const graph::BatchedProducts sizes = Call{call}.sizes;
  if (!has_results(sizes) || !has_terms(sizes)) return false;
  const auto in_bytes = static_cast<int64_t>(size_of(call.input_dtype(graph::BatchedMatmulIn::kA))),
             out_bytes = adds_in_floats(call) ? int64_t{4} : in_bytes;
  const graph::ProductLoops others = Batches(sizes).others;
  for (const graph::ProductLoops* const loops : {&others, &sizes.sums}) {
    for (int d = 0; d < loops->rank; ++d) {
      const graph::ProductLoops::Loop& loop = loops->loops[d];
      if (loop.a * in_bytes % 16 != 0 || loop.b * in_bytes % 16 != 0 ||
          loop.y * out_bytes % 16 != 0)
        return false;
    }
  }
  return true;
}

bool has_algorithms(const graph::OpCall& call) {
  for (const bool accumulate : {false, true}) {
    if (accumulate && Call{call}.sizes.sums.count() == 1) continue;
    const Product product = product_of(call, accumulate);
    Matmul& matmul = *context_of(call).matmul;
    if (matmul.supports(product)) continue;
    warn_once(std::to_string(product.batch) + " products of " + std::to_string(product.m) + " x " +
              std::to_string(product.n) + " x " + std::to_string(product.k) + " in " +
              name_of(product.in) +
              " use the native kernel, which is slow: cuBLASLt has no algorithm for them (" +
              matmul.why_not(product) + ")");
    return false;
  }
  return true;
}

constexpr exec::Implementation kRows[] = {
    exec::row<run<multiply>, batched_matmul_workspace, supports_library, has_algorithms>(
        graph::OpKind::kBatchedMatmul, "cublaslt"),
    exec::row<run<multiply_plainly>, batched_matmul_workspace>(graph::OpKind::kBatchedMatmul,
                                                               "plain"),
};

}  // namespace

constinit const exec::Implementations kCudaBatchedMatmul = kRows;

}  // namespace lockstep::cuda

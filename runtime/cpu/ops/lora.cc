// out += (scale h) B^T, part by part, by the products of gemm.h. Every output is one chain of fused
// multiply-adds that begins with its old value.
#include "runtime/graph/ops/lora.h"

#include <algorithm>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/lora.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void scale_kernel(const float* x, float scale, float* y, int64_t begin, int64_t end) {
  for_each_vector(end - begin, [&](size_t offset, auto access) HWY_ATTR {
    const int64_t i = begin + static_cast<int64_t>(offset);
    const auto values = access.load(x + i);
    access.store(hn::Mul(values, hn::Set(hn::DFromV<decltype(values)>(), scale)), y + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(scale_kernel);

namespace {

void scaled(const float* x, float scale, float* y, int64_t n) {
  in_parallel(n, kGrainElements, HWY_DYNAMIC_DISPATCH(scale_kernel), x, scale, y);
}

// The workspace: h times the scale, then the workspace of the products.
size_t scaled_bytes(const graph::LoraSizes& sizes) {
  return (static_cast<size_t>(sizes.rows * sizes.inner) * sizeof(float) + 63) / 64 * 64;
}

size_t workspace_bytes(const graph::OpCall& call) {
  const auto sizes = graph::LoraSizes::of(call);
  const graph::LoraAttributes& attributes = call.kind() == graph::OpKind::kLoraAdd
                                                ? *graph::LoraAdd<float>{call}.attributes
                                                : *graph::LoraAddBackward<float>{call}.attributes;
  const int threads = compute_threads();
  int64_t products = 0;
  for (const graph::OutputRows& part : attributes.parts)
    products = std::max({products,
                         gemm_workspace_bytes(sizes.rows, part.rows, sizes.rank, threads),
                         gemm_workspace_bytes(sizes.rows, sizes.rank, part.rows, threads),
                         gemm_workspace_bytes(part.rows, sizes.rank, sizes.rows, threads)});
  return scaled_bytes(sizes) + static_cast<size_t>(products);
}

void run(const graph::LoraAdd<float>& op) {
  const auto [rows, stride, inner, rank] = op.sizes;
  float* const h = op.workspace;
  std::byte* const work = op.call.workspace() + scaled_bytes(op.sizes);
  scaled(op.h, op.attributes->scale, h, rows * inner);
  if (op.out != op.y) {
    parallel_for(rows * stride, kGrainElements, [&](int64_t begin, int64_t end) {
      std::copy(op.y + begin, op.y + end, op.out + begin);
    });
  }
  for (const graph::LoraPart& part : graph::parts_of(*op.attributes, rank))
    gemm({.rows = rows,
          .columns = part.rows,
          .depth = rank,
          .a = {h + part.inner, inner},
          .b = {op.b + part.row * rank, rank, /*transposed=*/true},
          .c = op.out + part.column,
          .c_stride = stride,
          .accumulate = true},
         work);
}

void run_backward(const graph::LoraAddBackward<float>& op) {
  const auto [rows, stride, inner, rank] = op.sizes;
  float* const h = op.workspace;
  std::byte* const work = op.call.workspace() + scaled_bytes(op.sizes);
  if (op.d_b != nullptr) scaled(op.h, op.attributes->scale, h, rows * inner);
  for (const graph::LoraPart& part : graph::parts_of(*op.attributes, rank)) {
    if (op.d_b != nullptr)
      gemm({.rows = part.rows,
            .columns = rank,
            .depth = rows,
            .a = {op.d_out + part.column, stride, /*transposed=*/true},
            .b = {h + part.inner, inner},
            .c = op.d_b + part.row * rank,
            .c_stride = rank,
            .accumulate = op.accumulate},
           work);
    if (op.d_h != nullptr)
      gemm({.rows = rows,
            .columns = rank,
            .depth = part.rows,
            .a = {op.d_out + part.column, stride},
            .b = {op.b + part.row * rank, rank},
            .c = op.d_h + part.inner,
            .c_stride = inner,
            .accumulate = false},
           work);
  }
  if (op.d_h != nullptr) scaled(op.d_h, op.attributes->scale, op.d_h, rows * inner);
}

constexpr exec::Implementation kRows[] = {
    row<run, workspace_bytes>(graph::OpKind::kLoraAdd, "gemm"),
    row<run_backward, workspace_bytes>(graph::OpKind::kLoraAddBackward, "gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuLora = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

// Products with h times the scale, part by part: cuBLASLt's if every part is aligned for it,
// otherwise the plain kernel's.
#include "runtime/graph/ops/lora.h"

#include <algorithm>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/multiply.h"
#include "runtime/cuda/plan/products.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Scaled {
  const T* x;
  float scale;
  T* out;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    float values[N];
    load(x + i, values);
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] *= scale;
    store(values, out + i);
  }
};

template <typename T>
void scaled(const T* x, float scale, T* out, int64_t n, Stream stream) {
  const bool vectors = is_aligned(x) && is_aligned(out);
  for_each_flat<kVectorWidth<T>>(n, vectors, Scaled<T>{x, scale, out}, stream);
}

const graph::LoraAttributes& attributes_of(const graph::OpCall& call) {
  return call.kind() == graph::OpKind::kLoraAdd
             ? call.attributes<graph::LoraAttributes>()
             : call.attributes<graph::LoraBackwardAttributes>().forward;
}

// out_p += h_p B_p^T.
Product product_of_output(const graph::OpCall& call, const graph::LoraPart& part) {
  const graph::LoraSizes sizes = graph::LoraSizes::of(call);
  const DType dtype = call.input_dtype(graph::LoraAddIn::kY);
  return {.m = sizes.rows,
          .n = part.rows,
          .k = sizes.rank,
          .stride_a = sizes.inner,
          .stride_out = sizes.stride,
          .transpose_b = true,
          .in = dtype,
          .out = dtype,
          .accumulate = true,
          .tf32 = context_of(call).tf32};
}

// d_h_p = d_out_p B_p.
Product product_of_inner(const graph::OpCall& call, const graph::LoraPart& part) {
  const graph::LoraSizes sizes = graph::LoraSizes::of(call);
  const DType dtype = call.input_dtype(graph::LoraAddIn::kDOut);
  return {.m = sizes.rows,
          .n = sizes.rank,
          .k = part.rows,
          .stride_a = sizes.stride,
          .stride_out = sizes.inner,
          .in = dtype,
          .out = dtype,
          .tf32 = context_of(call).tf32};
}

// d_B_p (+)= d_out_p^T h_p.
Product product_of_weight(const graph::OpCall& call, const graph::LoraPart& part) {
  const graph::LoraSizes sizes = graph::LoraSizes::of(call);
  return {.m = part.rows,
          .n = sizes.rank,
          .k = sizes.rows,
          .stride_a = sizes.stride,
          .stride_b = sizes.inner,
          .transpose_a = true,
          .in = call.input_dtype(graph::LoraAddIn::kDOut),
          .out = DType::kF32,
          .accumulate = call.attributes<graph::LoraBackwardAttributes>().accumulate,
          .tf32 = context_of(call).tf32};
}

// cuBLASLt's operands must be aligned to 16 bytes.
bool supports_library(const graph::OpCall& call) {
  const graph::LoraSizes sizes = graph::LoraSizes::of(call);
  const auto size = static_cast<int64_t>(size_of(call.input_dtype(graph::LoraAddIn::kDOut)));
  const auto aligned = [&](int64_t elements) { return elements * size % 16 == 0; };
  if (!aligned(sizes.rank) || !aligned(sizes.stride)) return false;
  const std::vector<graph::LoraPart> parts = graph::parts_of(attributes_of(call), sizes.rank);
  return std::all_of(parts.begin(), parts.end(), [&](const graph::LoraPart& part) {
    return aligned(part.column) && aligned(part.inner) && aligned(part.row * sizes.rank);
  });
}

bool has_algorithms(const graph::OpCall& call) {
  Matmul& matmul = *context_of(call).matmul;
  for (const graph::LoraPart& part :
       graph::parts_of(attributes_of(call), graph::LoraSizes::of(call).rank)) {
    if (call.kind() == graph::OpKind::kLoraAdd) {
      if (!matmul.supports(product_of_output(call, part))) return false;
      continue;
    }
    if (call.has_output(graph::LoraAddBackwardOut::kDH) &&
        !matmul.supports(product_of_inner(call, part)))
      return false;
    if (call.has_output(graph::LoraAddBackwardOut::kDB) &&
        !matmul.supports(product_of_weight(call, part)))
      return false;
  }
  return true;
}

template <Multiply kMultiply>
void run(const graph::OpCall& call) {
  by_type<graph::LoraAdd>(call, [&]<typename T>(const auto& op) {
    const auto [rows, stride, inner, rank] = op.sizes;
    const Stream stream = stream_of(call);
    scaled(op.h, op.attributes->scale, op.workspace, rows * inner, stream);
    if (op.out != op.y) copy_flat(op.y, op.out, rows * stride, stream);
    for (const graph::LoraPart& part : graph::parts_of(*op.attributes, rank))
      kMultiply(call,
                product_of_output(call, part),
                {.a = op.workspace + part.inner,
                 .b = op.b + part.row * rank,
                 .out = op.out + part.column});
  });
}

template <Multiply kMultiply>
void run_backward(const graph::OpCall& call) {
  by_type<graph::LoraAddBackward>(call, [&]<typename T>(const auto& op) {
    const auto [rows, stride, inner, rank] = op.sizes;
    const Stream stream = stream_of(call);
    if (op.d_b != nullptr) scaled(op.h, op.attributes->scale, op.workspace, rows * inner, stream);
    for (const graph::LoraPart& part : graph::parts_of(*op.attributes, rank)) {
      const T* const d_out = op.d_out + part.column;
      if (op.d_b != nullptr)
        kMultiply(call,
                  product_of_weight(call, part),
                  {.a = d_out, .b = op.workspace + part.inner, .out = op.d_b + part.row * rank});
      if (op.d_h != nullptr)
        kMultiply(call,
                  product_of_inner(call, part),
                  {.a = d_out, .b = op.b + part.row * rank, .out = op.d_h + part.inner});
    }
    if (op.d_h != nullptr) scaled(op.d_h, op.attributes->scale, op.d_h, rows * inner, stream);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run<multiply>, lora_workspace, supports_library, has_algorithms>(
        graph::OpKind::kLoraAdd, "cublaslt"),
    exec::row<run<multiply_plainly>, lora_workspace>(graph::OpKind::kLoraAdd, "plain"),
    exec::row<run_backward<multiply>, lora_workspace, supports_library, has_algorithms>(
        graph::OpKind::kLoraAddBackward, "cublaslt"),
    exec::row<run_backward<multiply_plainly>, lora_workspace>(graph::OpKind::kLoraAddBackward,
                                                              "plain"),
};

}  // namespace

constinit const exec::Implementations kCudaLora = kRows;

}  // namespace lockstep::cuda

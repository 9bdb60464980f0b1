// Attention through cuDNN for the 16-bit types where it will, else by the own kernel: the choice is
// made once for a shape, forward and backward together, since each pass reads what the other's kind
// has left.
#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/ops/attention.h"
#include "runtime/cuda/ops/launchers.h"

namespace lockstep::cuda {
namespace {

AttentionShape attention_shape(const Shape& qkv, const AttentionAttributes& attributes) {
  return {qkv[0], qkv[1], attributes.heads, qkv[2] / 3 / attributes.heads, attributes.causal};
}

TensorId qkv_of(const Op& op) { return op.inputs[op.kind == OpKind::kAttention ? 0 : 1]; }

AttentionShape attention_shape(const Graph& graph, const Op& op) {
  return attention_shape(graph.shape(qkv_of(op)), op.as<AttentionAttributes>());
}

// cuDNN if it can; that it cannot is said once for each reason.
CudnnAttention* cudnn_for(const OpCall& call, const AttentionShape& shape, DType dtype) {
  if (dtype == DType::kF32) return nullptr;
  CudnnAttention& cudnn = call.device<LaunchContext>().cudnn_attention;
  if (cudnn.supports(shape, dtype)) return &cudnn;
  static std::string said;
  if (said != cudnn.why_not()) {
    said = cudnn.why_not();
    log_warn("attention by the own kernel, which is slower than cuDNN's: {}", said);
  }
  return nullptr;
}

// The samples that one call of cuDNN's backward pass takes.
AttentionShape part_of(AttentionShape shape) {
  shape.batch = cudnn_backward_batch(shape);
  return shape;
}

void run_backward_in_parts(CudnnAttention& cudnn,
                           const OpCall& call,
                           const AttentionShape& shape,
                           DType dtype) {
  const AttentionShape part = part_of(shape);
  const auto rows = static_cast<size_t>(part.time * part.heads);
  const size_t token_bytes = rows * static_cast<size_t>(part.head_size) * size_of(dtype);
  for (int64_t first = 0; first < shape.batch; first += part.batch) {
    const auto sample = static_cast<size_t>(first);
    cudnn.run({part, dtype, /*backward=*/true},
              {.qkv = call.input<std::byte>(1) + sample * 3 * token_bytes,
               .out = const_cast<std::byte*>(call.input<std::byte>(2)) + sample * token_bytes,
               .log_sum_exp = const_cast<float*>(call.input<float>(3)) + sample * rows,
               .d_out = call.input<std::byte>(0) + sample * token_bytes,
               .d_qkv = call.output<std::byte>(0) + sample * 3 * token_bytes},
              call.workspace());
  }
}

}  // namespace

bool supports_attention(const Graph& graph, const Op& op) {
  const AttentionShape shape = attention_shape(graph, op);
  return shape.head_size <= kMostHeadSize && shape.batch * shape.heads <= kMostAttentionHeads;
}

size_t attention_workspace(const Graph& graph, const Op& op) {
  const AttentionShape shape = attention_shape(graph, op);
  const size_t own = op.kind == OpKind::kAttention ? 0 : attention_workspace_bytes(shape);
  const DType dtype = graph[qkv_of(op)].dtype;
  if (dtype == DType::kF32) return own;
  if (op.kind == OpKind::kAttention)
    return cudnn_attention_workspace_bytes({shape, dtype, /*backward=*/false});
  return std::max(own, cudnn_attention_workspace_bytes({part_of(shape), dtype, /*backward=*/true}));
}

void run_attention(const OpCall& call) {
  const AttentionShape shape =
      attention_shape(call.input_shape(0), call.attributes<AttentionAttributes>());
  const DType dtype = call.input_dtype(0);
  auto* log_sum_exp = call.output<float>(1);
  if (CudnnAttention* cudnn = cudnn_for(call, shape, dtype))
    return cudnn->run({shape, dtype, /*backward=*/false},
                      {.qkv = call.input<std::byte>(0),
                       .out = call.output<std::byte>(0),
                       .log_sum_exp = log_sum_exp},
                      call.workspace());
  by_type(dtype, [&]<typename T>() {
    attention_forward<T>(shape,
                         call.input<T>(0),
                         call.output<T>(0),
                         log_sum_exp,
                         call.device<LaunchContext>().stream);
  });
}

void run_attention_backward(const OpCall& call) {
  const AttentionShape shape =
      attention_shape(call.input_shape(1), call.attributes<AttentionAttributes>());
  const DType dtype = call.input_dtype(1);
  if (CudnnAttention* cudnn = cudnn_for(call, shape, dtype))
    return run_backward_in_parts(*cudnn, call, shape, dtype);
  by_type(dtype, [&]<typename T>() {
    attention_backward<T>(shape,
                          call.input<T>(0),
                          call.input<T>(1),
                          call.input<T>(2),
                          call.input<float>(3),
                          call.output<T>(0),
                          reinterpret_cast<float*>(call.workspace()),
                          call.device<LaunchContext>().stream);
  });
}

}  // namespace lockstep::cuda

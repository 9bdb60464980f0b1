// Attention through cuDNN for the 16-bit types where it will, else by the own kernel: forward and
// backward choose alike, since each pass reads what the other's kind has left.
#include "runtime/cuda/ops/attention.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/warn_once.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep::cuda {
namespace {

AttentionShape attention_shape(const Shape& qkv, const AttentionAttributes& attributes) {
  return {qkv[0], qkv[1], attributes.heads, qkv[2] / 3 / attributes.heads, attributes.causal};
}

AttentionShape shape_of(const OpCall& op) {
  return attention_shape(op.input_shape(op.kind() == OpKind::kAttention ? 0 : 1),
                         op.attributes<AttentionAttributes>());
}

// The type of qkv and of all else that is not statistics.
DType dtype_of(const OpCall& op) { return op.input_dtype(0); }

// The samples that one call of cuDNN's backward pass takes.
AttentionShape part_of(AttentionShape shape) {
  shape.batch = cudnn_backward_batch(shape);
  return shape;
}

bool supports_own(const OpCall& op) {
  const AttentionShape shape = shape_of(op);
  return shape.head_size <= kMostHeadSize && shape.batch * shape.heads <= kMostAttentionHeads;
}

bool supports_cudnn(const OpCall& op) { return dtype_of(op) != DType::kF32 && supports_own(op); }

// The same for both passes of a shape.
bool has_cudnn(const OpCall& op) {
  CudnnAttention& cudnn = *context_of(op).cudnn_attention;
  if (cudnn.supports(shape_of(op), dtype_of(op))) return true;
  warn_once("attention by the own kernel, which is slower than cuDNN's: " + cudnn.why_not());
  return false;
}

size_t cudnn_workspace(const OpCall& op) {
  return cudnn_attention_workspace_bytes({shape_of(op), dtype_of(op), /*backward=*/false});
}

size_t cudnn_backward_workspace(const OpCall& op) {
  return cudnn_attention_workspace_bytes({part_of(shape_of(op)), dtype_of(op), /*backward=*/true});
}

void run_cudnn(const OpCall& call) {
  context_of(call).cudnn_attention->run({shape_of(call), dtype_of(call), /*backward=*/false},
                                        {.qkv = call.input<std::byte>(0),
                                         .out = call.output<std::byte>(0),
                                         .log_sum_exp = call.output<float>(1)},
                                        call.workspace());
}

void run_cudnn_backward(const OpCall& call) {
  const AttentionShape shape = shape_of(call), part = part_of(shape);
  const DType dtype = dtype_of(call);
  const auto rows = static_cast<size_t>(part.time * part.heads);
  const size_t token_bytes = rows * static_cast<size_t>(part.head_size) * size_of(dtype);
  for (int64_t first = 0; first < shape.batch; first += part.batch) {
    const auto sample = static_cast<size_t>(first);
    context_of(call).cudnn_attention->run(
        {part, dtype, /*backward=*/true},
        {.qkv = call.input<std::byte>(1) + sample * 3 * token_bytes,
         .out = const_cast<std::byte*>(call.input<std::byte>(2)) + sample * token_bytes,
         .log_sum_exp = const_cast<float*>(call.input<float>(3)) + sample * rows,
         .d_out = call.input<std::byte>(0) + sample * token_bytes,
         .d_qkv = call.output<std::byte>(0) + sample * 3 * token_bytes},
        call.workspace());
  }
}

void run_own(const OpCall& call) {
  by_type(dtype_of(call), [&]<typename T>() {
    attention_forward<T>(shape_of(call),
                         call.input<T>(0),
                         call.output<T>(0),
                         call.output<float>(1),
                         stream_of(call));
  });
}

size_t own_backward_workspace(const OpCall& op) { return attention_workspace_bytes(shape_of(op)); }

void run_own_backward(const OpCall& call) {
  by_type(dtype_of(call), [&]<typename T>() {
    attention_backward<T>(shape_of(call),
                          call.input<T>(0),
                          call.input<T>(1),
                          call.input<T>(2),
                          call.input<float>(3),
                          call.output<T>(0),
                          call.workspace<float>(),
                          stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kAttention, "cudnn", run_cudnn, cudnn_workspace, supports_cudnn, has_cudnn},
    {.kind = OpKind::kAttention, .name = "own", .run = run_own, .supports = supports_own},
    {OpKind::kAttentionBackward,
     "cudnn",
     run_cudnn_backward,
     cudnn_backward_workspace,
     supports_cudnn,
     has_cudnn},
    {OpKind::kAttentionBackward, "own", run_own_backward, own_backward_workspace, supports_own},
};

}  // namespace

constinit const Implementations kCudaAttention = kRows;

}  // namespace lockstep::cuda

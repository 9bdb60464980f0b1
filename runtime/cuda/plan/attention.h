#pragma once
// Which attention ops the GPU supports, and their workspaces.

#include <algorithm>
#include <string>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/plan/tiles.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/cached_attention.h"

namespace lockstep::cuda {

inline graph::AttentionShape attention_shape(const graph::OpCall& op) {
  return op.kind() == graph::OpKind::kAttention ? graph::AttentionForward<std::byte>{op}.shape
                                                : graph::AttentionBackward<std::byte>{op}.shape;
}

inline constexpr int64_t kMaxHeadSize = 256;

inline bool native_attention_supports(const graph::OpCall& op) {
  constexpr int64_t kMaxHeads = int64_t{1} << 30;  // over all samples, in 32 bits
  constexpr int64_t kMaxTime = int64_t{1} << 30;
  const graph::AttentionShape shape = attention_shape(op);
  return shape.head_size <= kMaxHeadSize && shape.batch * shape.heads <= kMaxHeads &&
         shape.time <= kMaxTime;
}

// Why a 16-bit op needs the native kernels; empty if cuDNN may be tried. Dropout needs them,
// because its mask must be the same everywhere.
inline std::string cudnn_attention_limit(const graph::OpCall& op) {
  const graph::AttentionShape shape = attention_shape(op);
  const bool has_documents = op.kind() == graph::OpKind::kAttention
                                 ? op.has_input(graph::AttentionIn::kDocuments)
                                 : op.has_input(graph::AttentionBackwardIn::kDocuments);
  if (shape.window != 0 || has_documents ||
      op.attributes<graph::AttentionAttributes>().dropout != 0)
    return "a window, documents or dropout";
  if (shape.batch * shape.heads > kMaxBlocksDown)
    return "batch size times heads exceeds a grid's second dimension";
  return cudnn_head_limit(shape);
}

// Of qkv and everything else except the statistics.
inline DType attention_dtype(const graph::OpCall& op) {
  return op.input_dtype(graph::InputName::at(0));
}

// The native kernels on tensor cores, and those for floats.
inline bool half_attention_supports(const graph::OpCall& op) {
  return attention_dtype(op) != DType::kF32 && native_attention_supports(op);
}
inline bool float_attention_supports(const graph::OpCall& op) {
  return attention_dtype(op) == DType::kF32 && native_attention_supports(op);
}

inline bool cudnn_attention_supports(const graph::OpCall& op) {
  return attention_dtype(op) != DType::kF32 && cudnn_attention_limit(op).empty() &&
         native_attention_supports(op);
}

// The samples that one call of cuDNN's backward pass processes.
inline graph::AttentionShape cudnn_attention_part(graph::AttentionShape shape) {
  shape.batch = cudnn_backward_batch(shape);
  return shape;
}

inline size_t cudnn_attention_workspace(const graph::OpCall& op) {
  return cudnn_attention_workspace_bytes(
      {attention_shape(op), attention_dtype(op), /*backward=*/false});
}

inline size_t cudnn_attention_backward_workspace(const graph::OpCall& op) {
  return cudnn_attention_workspace_bytes(
      {cudnn_attention_part(attention_shape(op)), attention_dtype(op), /*backward=*/true});
}

inline size_t native_attention_backward_workspace(const graph::OpCall& op) {
  const graph::AttentionShape shape = attention_shape(op);
  return static_cast<size_t>(shape.batch * shape.heads * shape.time) * sizeof(float);
}

// Enough for any implementation that may be chosen.
inline size_t attention_workspace(const graph::OpCall& op) {
  return cudnn_attention_supports(op) ? cudnn_attention_workspace(op) : 0;
}
inline size_t attention_backward_workspace(const graph::OpCall& op) {
  const size_t native = native_attention_backward_workspace(op);
  return cudnn_attention_supports(op) ? std::max(native, cudnn_attention_backward_workspace(op))
                                      : native;
}

inline bool cached_attention_supports(const graph::CachedAttention<float>& op) {
  return op.head_size <= kMaxHeadSize && op.batch * op.tokens <= kMaxBlocksAcross;
}

}  // namespace lockstep::cuda

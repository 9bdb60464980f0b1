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

inline bool attention_has_documents(const graph::OpCall& op) {
  return op.kind() == graph::OpKind::kAttention
             ? op.has_input(graph::AttentionIn::kDocuments)
             : op.has_input(graph::AttentionBackwardIn::kDocuments);
}

// Whether documents only say where a sample's padding begins.
inline bool attention_is_padded(const graph::OpCall& op) {
  return attention_has_documents(op) && op.attributes<graph::AttentionAttributes>().one_document;
}

// Why a 16-bit op needs the native kernels; empty if cuDNN may be tried. Dropout needs them,
// because its mask must be the same everywhere.
inline std::string cudnn_attention_limit(const graph::OpCall& op) {
  const graph::AttentionShape shape = attention_shape(op);
  if (attention_has_documents(op) && !attention_is_padded(op)) return "documents share a sample";
  if (op.attributes<graph::AttentionAttributes>().dropout != 0) return "dropout";
  // Padding far behind the last token would see nothing.
  if (attention_is_padded(op) && shape.padding_sees && shape.window != 0)
    return "a window of padding that sees";
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

// What the op asks of cuDNN.
inline CudnnAttentionKey cudnn_attention_key(const graph::OpCall& op) {
  const graph::AttentionShape shape = attention_shape(op);
  const bool backward = op.kind() == graph::OpKind::kAttentionBackward;
  return {backward ? cudnn_attention_part(shape) : shape,
          attention_dtype(op),
          backward,
          attention_is_padded(op)};
}

// Bytes of one of the two arrays of lengths, which come first in the workspace.
inline size_t cudnn_attention_lengths_bytes(const CudnnAttentionKey& key) {
  return key.padded ? aligned_bytes(static_cast<size_t>(key.shape.batch) * sizeof(int32_t)) : 0;
}

inline size_t cudnn_attention_workspace(const graph::OpCall& op) {
  const CudnnAttentionKey key = cudnn_attention_key(op);
  return 2 * cudnn_attention_lengths_bytes(key) + cudnn_attention_workspace_bytes(key);
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
  return cudnn_attention_supports(op) ? std::max(native, cudnn_attention_workspace(op)) : native;
}

inline bool cached_attention_supports(const graph::CachedAttention<float>& op) {
  return op.head_size <= kMaxHeadSize && op.batch * op.tokens <= kMaxBlocksAcross;
}

}  // namespace lockstep::cuda

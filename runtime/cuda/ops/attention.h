#pragma once
// Scaled dot-product attention without the T x T matrix, for float and wherever cuDNN's is not at
// hand: keys are visited in blocks and the softmax is kept as a running maximum and sum. The order
// of every sum is fixed by the shape alone. T, what is stored, is float, BFloat16 or Float16;
// arithmetic is in float, without tensor cores.

#include <compare>
#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// B samples of T tokens, H heads of size D; C = H D. D is at most kMostHeadSize.
struct AttentionShape {
  int64_t batch, time, heads, head_size;
  bool causal;  // token t attends to tokens 0..t; else to all

  auto operator<=>(const AttentionShape&) const = default;
};
inline constexpr int64_t kMostHeadSize = 256;
// Most heads of all samples together: what a grid has in its second dimension.
inline constexpr int64_t kMostAttentionHeads = 65535;

// out = softmax(q k^T / sqrt(D)) v for each head.
template <typename T>
void attention_forward(const AttentionShape& shape,
                       const T* qkv,        // (B, T, 3C): q, k and v after each other, each (H, D)
                       T* out,              // (B, T, C)
                       float* log_sum_exp,  // (B, H, T)
                       Stream stream);

// Overwrites d_qkv with the gradient of qkv. No output overlaps an input.
template <typename T>
void attention_backward(const AttentionShape& shape,
                        const T* d_out,            // (B, T, C)
                        const T* qkv,              // (B, T, 3C)
                        const T* out,              // (B, T, C) of attention_forward
                        const float* log_sum_exp,  // (B, H, T) of attention_forward
                        T* d_qkv,                  // (B, T, 3C)
                        float* workspace,          // attention_workspace_bytes(shape)
                        Stream stream);
size_t attention_workspace_bytes(const AttentionShape& shape);

}  // namespace lockstep::cuda

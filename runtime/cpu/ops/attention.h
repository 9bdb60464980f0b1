#pragma once
// Scaled dot-product attention without the T x T matrix: keys are visited in blocks, and the
// softmax is kept as a running maximum and sum (Milakov and Gimelshein 2018; Dao et al. 2022). The
// order in which anything is summed is fixed by the shape alone: bits do not depend on threads or
// on the vector width.

#include <cstdint>

namespace lockstep::cpu {

// B samples of T tokens, H heads of size D; C = H D. Each >= 1.
struct AttentionShape {
  int64_t batch, time, heads, head_size;
  bool causal;  // token t attends to tokens 0..t; else to all
};

// Scratch memory for either function below with so many threads. `workspace` must be aligned to 64
// bytes; its contents are lost.
int64_t attention_workspace_bytes(const AttentionShape& shape, int threads);

// out = softmax(q k^T / sqrt(D)) v for each head; log_sum_exp = the logarithm of the softmax's
// denominator, which backward needs.
void attention_forward(const AttentionShape& shape,
                       const float* qkv,    // (B, T, 3C): q, k and v after each other, each (H, D)
                       float* out,          // (B, T, C)
                       float* log_sum_exp,  // (B, H, T)
                       void* workspace);

// Overwrites d_qkv with the gradient of qkv. No output overlaps an input.
void attention_backward(const AttentionShape& shape,
                        const float* d_out,        // (B, T, C)
                        const float* qkv,          // (B, T, 3C)
                        const float* out,          // (B, T, C) of attention_forward
                        const float* log_sum_exp,  // (B, H, T) of attention_forward
                        float* d_qkv,              // (B, T, 3C)
                        void* workspace);

}  // namespace lockstep::cpu

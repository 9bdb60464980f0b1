#pragma once
// Padding at the end of samples, for attention through cuDNN: lengths are its mask, and the rows of
// padding, which it leaves undefined, are written here. Arrays have 16-bit elements, and head sizes
// are multiples of 8.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep::cuda {

// (B) each, on the device: see CudnnAttentionArrays.
struct AttentionLengths {
  int32_t* queries = nullptr;
  int32_t* keys = nullptr;
};

// Sets the lengths of samples with documents (B, T), each with one document at its front. A sample
// of padding alone gets a length of 1: cuDNN before 9.25 makes NaN of samples without a token.
void set_attention_lengths(const graph::AttentionShape& shape,
                           const int32_t* documents,
                           const AttentionLengths& lengths,
                           Stream stream);

// Sets y (B, T, H D) and log_sum_exp (B, H, T) to 0 for queries that see nothing.
void clear_padding(const graph::AttentionShape& shape,
                   const int32_t* documents,
                   std::byte* y,
                   float* log_sum_exp,
                   Stream stream);

// Sets the gradients (B, T, P) of queries that see nothing, and of padding's keys and values, to 0.
void clear_padding_gradients(const graph::AttentionShape& shape,
                             const int32_t* documents,
                             std::byte* d_qkv,
                             Stream stream);

}  // namespace lockstep::cuda

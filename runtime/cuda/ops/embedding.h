#pragma once
// Token plus position embedding on the GPU. Every id is in [0, V). T, what is stored, is float,
// BFloat16 or Float16; gradients are summed in float, in an order that the ids alone fix.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

struct EmbeddingSizes {
  int64_t batch;       // B
  int64_t time;        // T
  int64_t channels;    // C
  int64_t vocabulary;  // V
};

// y[b, t] = token[ids[b, t]] + position[t].
template <typename T>
void embedding_forward(const EmbeddingSizes& sizes,
                       const int32_t* ids,  // (B, T)
                       const T* token,      // (V, C)
                       const T* position,   // (at least T, C); the first T rows are used
                       T* y,                // (B, T, C)
                       Stream stream);

// d_token[v] = or += the sum of d_y[b, t] where ids[b, t] = v; d_position[t] = or += the sum of
// d_y[b, t] over b. Overwriting zeroes the rows of d_token that no id names. Only the first T rows
// of d_position are touched.
template <typename T>
struct EmbeddingBackward {
  EmbeddingSizes sizes;
  const int32_t* sorted_ids;  // (B T) the ids in ascending order
  const int32_t* places;      // (B T) where in (B, T) each comes from; ascending among equal ids
  const T* d_y;               // (B, T, C)
  float* d_token;             // (V, C)
  bool accumulate_token;
  float* d_position;  // (at least T, C)
  bool accumulate_position;
  float* workspace;  // embedding_backward_workspace_bytes(sizes)
};
template <typename T>
void embedding_backward(const EmbeddingBackward<T>& op, Stream stream);
size_t embedding_backward_workspace_bytes(const EmbeddingSizes& sizes);

}  // namespace lockstep::cuda

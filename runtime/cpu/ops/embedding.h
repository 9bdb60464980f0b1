#pragma once
// Token plus position embedding, fp32. The caller has checked that every id is in [0, V).

#include <cstdint>

namespace lockstep::cpu {

struct EmbeddingSizes {
  int64_t batch;       // B
  int64_t time;        // T
  int64_t channels;    // C
  int64_t vocabulary;  // V
};

// y[b, t] = token[ids[b, t]] + position[t].
void embedding_forward(const EmbeddingSizes& sizes,
                       const int32_t* ids,     // (B, T)
                       const float* token,     // (V, C)
                       const float* position,  // (at least T, C); the first T rows are used
                       float* y);              // (B, T, C)

// d_token[v] = or += the sum of d_y[b, t] where ids[b, t] = v, in the order of (b, t);
// d_position[t] = or += the sum of d_y[b, t] over b. Overwriting zeroes the rows of d_token that no
// id names. Only the first T rows of d_position are touched.
void embedding_backward(const EmbeddingSizes& sizes,
                        const int32_t* ids,  // (B, T)
                        const float* d_y,    // (B, T, C)
                        float* d_token,      // (V, C)
                        bool accumulate_token,
                        float* d_position,  // (at least T, C)
                        bool accumulate_position);

}  // namespace lockstep::cpu

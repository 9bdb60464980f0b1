#pragma once
// attention: per head, softmax(q k^T / sqrt(D) [causal mask]) v, blockwise.
//   inputs qkv (B, T, 3C); outputs y (B, T, C), log_sum_exp (B, H, T)
// attention_backward: inputs d_y, qkv, y, log_sum_exp; outputs d_qkv (B, T, 3C)

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct AttentionAttributes {
  int64_t heads = 1;
  bool causal = true;
};

namespace ops {

// Self-attention over packed qkv (B, T, 3C) -> (B, T, C); C = heads * head size, scores scaled by
// 1/sqrt(head size).
TensorId attention(
    GraphBuilder& builder, const std::string& name, TensorId qkv, int64_t heads, bool causal);

}  // namespace ops
}  // namespace lockstep

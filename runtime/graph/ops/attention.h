#pragma once
// attention: per head, softmax(q k^T / sqrt(D) [causal mask]) v, blockwise.
//   inputs qkv (B, T, 3C); outputs y (B, T, C), log_sum_exp (B, H, T)
// attention_backward: inputs d_y, qkv, y, log_sum_exp; outputs d_qkv (B, T, 3C)

#include <compare>
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

// B samples of T tokens, H heads of size D; C = H D. Each >= 1.
struct AttentionShape {
  int64_t batch, time, heads, head_size;
  bool causal;  // token t attends to tokens 0..t; else to all

  // Of qkv (B, T, 3C).
  static AttentionShape of(const Shape& qkv, const AttentionAttributes& attributes) {
    return {qkv[0], qkv[1], attributes.heads, qkv[2] / 3 / attributes.heads, attributes.causal};
  }
  auto operator<=>(const AttentionShape&) const = default;
};

template <typename T>
struct AttentionForward {
  AttentionShape shape;
  const T* qkv;          // (B, T, 3C): q, k and v after each other, each (H, D)
  T* y;                  // (B, T, C)
  Wide<T>* log_sum_exp;  // (B, H, T) the logarithm of the softmax's denominator
  std::byte* workspace;  // as the implementation needs

  static AttentionForward of(const OpCall& op) {
    return {.shape = AttentionShape::of(op.input_shape(0), op.attributes<AttentionAttributes>()),
            .qkv = op.input<T>(0),
            .y = op.output<T>(0),
            .log_sum_exp = op.output<Wide<T>>(1),
            .workspace = op.workspace()};
  }
};

template <typename T>
struct AttentionBackward {
  AttentionShape shape;
  const T* d_y;                // (B, T, C)
  const T* qkv;                // (B, T, 3C)
  const T* y;                  // (B, T, C)
  const Wide<T>* log_sum_exp;  // (B, H, T)
  T* d_qkv;                    // (B, T, 3C)
  std::byte* workspace;        // as the implementation needs

  static AttentionBackward of(const OpCall& op) {
    return {.shape = AttentionShape::of(op.input_shape(1), op.attributes<AttentionAttributes>()),
            .d_y = op.input<T>(0),
            .qkv = op.input<T>(1),
            .y = op.input<T>(2),
            .log_sum_exp = op.input<Wide<T>>(3),
            .d_qkv = op.output<T>(0),
            .workspace = op.workspace()};
  }
};

}  // namespace lockstep

#pragma once
// attention: per head, softmax(q k^T / sqrt(D) [causal mask]) v, blockwise. Groups of H / K heads
// share a head of k and v (Ainslie et al. 2023); K = H where each has its own.
//   inputs qkv (B, T, P); outputs y (B, T, H D), log_sum_exp (B, H, T)
// attention_backward: inputs d_y, qkv, y, log_sum_exp; outputs d_qkv (B, T, P)
// A token's P = (H + 2 K) D elements are its H heads of q, K of k and K of v.

#include <compare>
#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct AttentionAttributes {
  int64_t heads = 1;
  bool causal = true;
  int64_t kv_heads = heads;  // of k and v; a divisor of heads
};

namespace ops {

// Self-attention over packed qkv (B, T, P) -> (B, T, H D), scores scaled by 1/sqrt(D).
TensorId attention(GraphBuilder& builder,
                   const std::string& name,
                   TensorId qkv,
                   const AttentionAttributes& attributes);

}  // namespace ops

// B samples of T tokens, H heads of size D, K of k and v. Each >= 1.
struct AttentionShape {
  int64_t batch, time, heads, head_size;
  bool causal;  // token t attends to tokens 0..t; else to all
  int64_t kv_heads = heads;

  // Of qkv (B, T, P).
  static AttentionShape of(const Shape& qkv, const AttentionAttributes& attributes) {
    const int64_t head_size = qkv[2] / (attributes.heads + 2 * attributes.kv_heads);
    return {qkv[0], qkv[1], attributes.heads, head_size, attributes.causal, attributes.kv_heads};
  }

  constexpr int64_t group() const { return heads / kv_heads; }  // heads that share one of k and v
  constexpr int64_t width() const { return heads * head_size; }
  constexpr int64_t kv_width() const { return kv_heads * head_size; }
  constexpr int64_t packed_width() const { return width() + 2 * kv_width(); }
  auto operator<=>(const AttentionShape&) const = default;
};

template <typename T>
struct AttentionForward {
  AttentionShape shape;
  const T* qkv;          // (B, T, P): q (H, D), k (K, D) and v (K, D) after each other
  T* y;                  // (B, T, H D)
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
  const T* d_y;                // (B, T, H D)
  const T* qkv;                // (B, T, P)
  const T* y;                  // (B, T, H D)
  const Wide<T>* log_sum_exp;  // (B, H, T)
  T* d_qkv;                    // (B, T, P)
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

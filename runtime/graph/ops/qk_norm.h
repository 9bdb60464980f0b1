#pragma once
// qk_norm: RMS norms of the heads of q and k, which are packed as q, k and v one after the other
// (Henry et al. 2020; Qwen3). Each head x of q becomes x rstd gamma_q, each head of k x rstd
// gamma_k, with rstd = 1 / sqrt(mean(x^2) + epsilon); v is copied.
//   inputs  x (B, T, P), gamma_q (D), gamma_k (D); P = (H + 2 K) D as in attention.h
//   outputs y (B, T, P), rstd_q (B, T, H), rstd_k (B, T, K)
// qk_norm_backward: as rms_norm_backward, by heads; for v, d_x is d_y.
//   inputs  d_y, x, gamma_q, gamma_k, rstd_q, rstd_k; outputs d_x, d_gamma_q, d_gamma_k
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/rms_norm.h"

namespace lockstep {

class GraphBuilder;

struct QkNormAttributes {
  int64_t heads = 1, kv_heads = 1;  // of q; of k and v
  float epsilon = 1e-5f;
};

namespace ops {

// x (B, T, P) -> (B, T, P). gamma_q, gamma_k (D).
TensorId qk_norm(GraphBuilder& builder,
                 const std::string& name,
                 TensorId x,
                 TensorId gamma_q,
                 TensorId gamma_k,
                 const QkNormAttributes& attributes);

}  // namespace ops

// The part of each token that is copied: v.
template <typename T>
struct QkNormRest {
  int64_t tokens, width, first;  // B T, P, and the index at which v begins
  const T* from;                 // (tokens, P)
  T* to;                         // (tokens, P). May be `from`
};

template <typename T>
struct QkNormForward {
  RmsNormForward<T> q, k;  // rows are heads: (tokens H) and (tokens K) of D elements
  QkNormRest<T> rest;

  static QkNormForward of(const OpCall& op) {
    const auto& attributes = op.attributes<QkNormAttributes>();
    const Shape& shape = op.input_shape(0);
    const int64_t size = op.input_shape(1).elements(), tokens = shape.rows();
    const auto of_heads = [&](int64_t heads, int64_t first, size_t gamma) {
      const T* const x = op.input<T>(0);
      T* const y = op.output<T>(0);
      return RmsNormForward<T>{.rows = tokens * heads,
                               .columns = size,
                               .places = {heads, shape.columns()},
                               .epsilon = attributes.epsilon,
                               .x = x == nullptr ? nullptr : x + first,
                               .delta = nullptr,
                               .gamma = op.input<T>(gamma),
                               .y = y == nullptr ? nullptr : y + first,
                               .sum = nullptr,
                               .rstd = op.output<Wide<T>>(gamma)};
    };
    const int64_t q_width = attributes.heads * size, k_width = attributes.kv_heads * size;
    return {.q = of_heads(attributes.heads, 0, 1),
            .k = of_heads(attributes.kv_heads, q_width, 2),
            .rest = {tokens, shape.columns(), q_width + k_width, op.input<T>(0), op.output<T>(0)}};
  }
};

template <typename T>
struct QkNormBackward {
  RmsNormBackward<T> q, k;  // each one uses the whole workspace, one after the other
  QkNormRest<T> rest;

  static QkNormBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<QkNormAttributes>();
    const Shape& shape = op.input_shape(0);
    const int64_t size = op.input_shape(2).elements(), tokens = shape.rows();
    const auto of_heads = [&](int64_t heads, int64_t first, size_t number) {
      const auto after = [first](auto* array) {
        return array == nullptr ? nullptr : array + first;
      };
      return RmsNormBackward<T>{.rows = tokens * heads,
                                .columns = size,
                                .places = {heads, shape.columns()},
                                .d_y = after(op.input<T>(0)),
                                .d_residual = nullptr,
                                .sum = after(op.input<T>(1)),
                                .gamma = op.input<T>(2 + number),
                                .rstd = op.input<Wide<T>>(4 + number),
                                .d_sum = after(op.output<T>(0)),
                                .d_gamma = op.output<Wide<T>>(1 + number),
                                .workspace = op.workspace<Wide<T>>()};
    };
    const int64_t q_width = attributes.heads * size, k_width = attributes.kv_heads * size;
    return {.q = of_heads(attributes.heads, 0, 0),
            .k = of_heads(attributes.kv_heads, q_width, 1),
            .rest = {tokens, shape.columns(), q_width + k_width, op.input<T>(0), op.output<T>(0)}};
  }
};

}  // namespace lockstep

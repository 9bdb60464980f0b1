#pragma once
// qk_norm: RMS norms of the heads of q and k, which are packed as q, k and v one after the other
// (Henry et al. 2020; Qwen3). Each head x of q becomes x rstd gamma_q, each head of k x rstd
// gamma_k, with rstd = 1 / sqrt(mean(x^2) + epsilon); v is copied.
// x is (B, T, P), P = (H + 2 K) D as in attention.h.
// qk_norm_backward: as rms_norm_backward, by heads; for v, d_x is d_y.
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/rms_norm.h"

namespace lockstep::graph {

class GraphBuilder;

enum class QkNormIn : InputIndex { kX, kGammaQ, kGammaK };  // (B, T, P), (D), (D)
enum class QkNormOut : OutputIndex { kY, kRstdQ, kRstdK };  // (B, T, P), (B, T, H), (B, T, K)
enum class QkNormBackwardIn : InputIndex { kDY, kX, kGammaQ, kGammaK, kRstdQ, kRstdK };
enum class QkNormBackwardOut : OutputIndex { kDX, kDGammaQ, kDGammaK };

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
    const Shape& shape = op.input_shape(QkNormIn::kX);
    const int64_t size = op.input_shape(QkNormIn::kGammaQ).elements(), tokens = shape.rows();
    const auto of_heads = [&](int64_t heads, int64_t first, QkNormIn gamma, QkNormOut rstd) {
      const T* const x = op.input<T>(QkNormIn::kX);
      T* const y = op.output<T>(QkNormOut::kY);
      return RmsNormForward<T>{.rows = tokens * heads,
                               .columns = size,
                               .places = {heads, shape.columns()},
                               .epsilon = attributes.epsilon,
                               .x = x == nullptr ? nullptr : x + first,
                               .delta = nullptr,
                               .gamma = op.input<T>(gamma),
                               .y = y == nullptr ? nullptr : y + first,
                               .sum = nullptr,
                               .rstd = op.output<Wide<T>>(rstd)};
    };
    const int64_t q_width = attributes.heads * size, k_width = attributes.kv_heads * size;
    return {.q = of_heads(attributes.heads, 0, QkNormIn::kGammaQ, QkNormOut::kRstdQ),
            .k = of_heads(attributes.kv_heads, q_width, QkNormIn::kGammaK, QkNormOut::kRstdK),
            .rest = {tokens,
                     shape.columns(),
                     q_width + k_width,
                     op.input<T>(QkNormIn::kX),
                     op.output<T>(QkNormOut::kY)}};
  }
};

template <typename T>
struct QkNormBackward {
  RmsNormBackward<T> q, k;  // each one uses the whole workspace, one after the other
  QkNormRest<T> rest;

  static QkNormBackward of(const OpCall& op) {
    using In = QkNormBackwardIn;
    using Out = QkNormBackwardOut;
    const auto& attributes = op.attributes<QkNormAttributes>();
    const Shape& shape = op.input_shape(QkNormBackwardIn::kDY);
    const int64_t size = op.input_shape(QkNormBackwardIn::kGammaQ).elements(),
                  tokens = shape.rows();
    const auto of_heads = [&](int64_t heads, int64_t first, In gamma, In rstd, Out d_gamma) {
      const auto after = [first](auto* array) {
        return array == nullptr ? nullptr : array + first;
      };
      return RmsNormBackward<T>{.rows = tokens * heads,
                                .columns = size,
                                .places = {heads, shape.columns()},
                                .d_y = after(op.input<T>(QkNormBackwardIn::kDY)),
                                .d_residual = nullptr,
                                .sum = after(op.input<T>(QkNormBackwardIn::kX)),
                                .gamma = op.input<T>(gamma),
                                .rstd = op.input<Wide<T>>(rstd),
                                .d_sum = after(op.output<T>(QkNormBackwardOut::kDX)),
                                .d_gamma = op.output<Wide<T>>(d_gamma),
                                .workspace = op.workspace<Wide<T>>()};
    };
    const int64_t q_width = attributes.heads * size, k_width = attributes.kv_heads * size;
    return {.q = of_heads(attributes.heads, 0, In::kGammaQ, In::kRstdQ, Out::kDGammaQ),
            .k = of_heads(attributes.kv_heads, q_width, In::kGammaK, In::kRstdK, Out::kDGammaK),
            .rest = {tokens,
                     shape.columns(),
                     q_width + k_width,
                     op.input<T>(QkNormBackwardIn::kDY),
                     op.output<T>(QkNormBackwardOut::kDX)}};
  }
};

}  // namespace lockstep::graph

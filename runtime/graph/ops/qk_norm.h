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
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::graph {

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

// How the tokens of x are divided.
struct QkNormSizes {
  struct Heads {
    int64_t count, first;  // of a token, and the index at which they begin
  };

  int64_t tokens, width, head_size;  // B T, P, D
  Heads q, k;
  int64_t rest;  // the index at which v begins

  static QkNormSizes of(const Shape& x, const QkNormAttributes& attributes) {
    const int64_t heads = attributes.heads, kv_heads = attributes.kv_heads;
    const int64_t size = x.columns() / (heads + 2 * kv_heads);
    return {.tokens = x.rows(),
            .width = x.columns(),
            .head_size = size,
            .q = {heads, 0},
            .k = {kv_heads, heads * size},
            .rest = (heads + kv_heads) * size};
  }
  // Where the heads begin; null for null.
  template <typename T>
  static T* begin(T* array, Heads heads) {
    return array == nullptr ? nullptr : array + heads.first;
  }
};

// The part of each token that is copied: v.
template <typename T>
struct QkNormRest {
  int64_t tokens, width, first;  // B T, P, and the index at which v begins
  const T* from;                 // (tokens, P)
  T* to;                         // (tokens, P). May be `from`
};

template <typename T>
struct QkNormForward {
  const OpCall& call = OpCall::none();
  QkNormSizes sizes =
      QkNormSizes::of(call.input_shape(QkNormIn::kX), call.attributes<QkNormAttributes>());
  // Rows are heads: (tokens H) and (tokens K) of D elements.
  RowNormForward<T> q = norm(sizes.q, QkNormIn::kGammaQ, QkNormOut::kRstdQ);
  RowNormForward<T> k = norm(sizes.k, QkNormIn::kGammaK, QkNormOut::kRstdK);
  QkNormRest<T> rest = {sizes.tokens,
                        sizes.width,
                        sizes.rest,
                        call.input<T>(QkNormIn::kX),
                        call.output<T>(QkNormOut::kY)};

 private:
  RowNormForward<T> norm(QkNormSizes::Heads heads, QkNormIn gamma, QkNormOut rstd) const {
    return {.rows = sizes.tokens * heads.count,
            .columns = sizes.head_size,
            .places = {heads.count, sizes.width},
            .epsilon = call.attributes<QkNormAttributes>().epsilon,
            .x = QkNormSizes::begin(call.input<T>(QkNormIn::kX), heads),
            .gamma = call.input<T>(gamma),
            .y = QkNormSizes::begin(call.output<T>(QkNormOut::kY), heads),
            .rstd = call.output<Wide<T>>(rstd)};
  }
};

template <typename T>
struct QkNormBackward {
  using In = QkNormBackwardIn;
  using Out = QkNormBackwardOut;

  const OpCall& call = OpCall::none();
  QkNormSizes sizes =
      QkNormSizes::of(call.input_shape(In::kDY), call.attributes<QkNormAttributes>());
  // Each one uses the whole workspace, one after the other.
  RowNormBackward<T> q = norm(sizes.q, In::kGammaQ, In::kRstdQ, Out::kDGammaQ);
  RowNormBackward<T> k = norm(sizes.k, In::kGammaK, In::kRstdK, Out::kDGammaK);
  QkNormRest<T> rest = {
      sizes.tokens, sizes.width, sizes.rest, call.input<T>(In::kDY), call.output<T>(Out::kDX)};

 private:
  RowNormBackward<T> norm(QkNormSizes::Heads heads, In gamma, In rstd, Out d_gamma) const {
    return {.rows = sizes.tokens * heads.count,
            .columns = sizes.head_size,
            .places = {heads.count, sizes.width},
            .d_y = QkNormSizes::begin(call.input<T>(In::kDY), heads),
            .sum = QkNormSizes::begin(call.input<T>(In::kX), heads),
            .gamma = call.input<T>(gamma),
            .rstd = call.input<Wide<T>>(rstd),
            .d_sum = QkNormSizes::begin(call.output<T>(Out::kDX), heads),
            .d_gamma = call.output<Wide<T>>(d_gamma),
            .workspace = call.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep::graph

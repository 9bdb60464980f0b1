#pragma once
// embedding: y[b, t] = token[ids[b, t]] + position[t].
// embedding_backward: d_token (+)= sum of d_y over equal ids, d_position (+)= sum of d_y over b, in
// a fixed order. Gradients of frozen parameters are absent, and
// d_position without a position.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class EmbeddingIn : InputIndex { kIds, kToken, kPosition };
enum class EmbeddingOut : OutputIndex { kY };
enum class EmbeddingBackwardIn : InputIndex { kDY, kIds };
enum class EmbeddingBackwardOut : OutputIndex { kDToken, kDPosition };

struct EmbeddingAttributes {
  bool accumulate_token = false;  // backward only: d_token += instead of =
  bool accumulate_position = false;
};

namespace ops {

// token (V, C)[ids (B, T) i32] + position (>=T, C) -> (B, T, C). position may be kNoTensor.
TensorId embedding(GraphBuilder& builder,
                   const std::string& name,
                   TensorId ids,
                   TensorId token,
                   TensorId position);

}  // namespace ops

struct EmbeddingSizes {
  int64_t batch, time, channels, vocabulary;  // B, T, C, V
};

template <typename T>
struct EmbeddingForward {
  EmbeddingSizes sizes;
  const int32_t* ids;  // (B, T), each in [0, V): checked by the caller
  const T* token;      // (V, C)
  const T* position;   // (at least T, C), or null
  T* y;                // (B, T, C)

  static EmbeddingForward of(const OpCall& op) {
    const Shape &ids = op.input_shape(EmbeddingIn::kIds),
                &token = op.input_shape(EmbeddingIn::kToken);
    return {.sizes = {ids[0], ids[1], token[1], token[0]},
            .ids = op.input<int32_t>(EmbeddingIn::kIds),
            .token = op.input<T>(EmbeddingIn::kToken),
            .position = op.input<T>(EmbeddingIn::kPosition),
            .y = op.output<T>(EmbeddingOut::kY)};
  }
};

template <typename T>
struct EmbeddingBackward {
  EmbeddingSizes sizes;
  const T* d_y;           // (B, T, C)
  const int32_t* ids;     // (B, T)
  Wide<T>* d_token;       // (V, C) or null; if overwritten, rows of unused ids become 0
  bool accumulate_token;  // += instead of =
  Wide<T>* d_position;    // (at least T, C), of which the first T rows are written; or null
  bool accumulate_position;

  static EmbeddingBackward of(const OpCall& op) {
    const Shape& ids = op.input_shape(EmbeddingBackwardIn::kIds);
    const int64_t vocabulary = op.has_output(EmbeddingBackwardOut::kDToken)
                                   ? op.output_shape(EmbeddingBackwardOut::kDToken)[0]
                                   : 0;
    const auto& attributes = op.attributes<EmbeddingAttributes>();
    return {
        .sizes = {ids[0], ids[1], op.input_shape(EmbeddingBackwardIn::kDY).columns(), vocabulary},
        .d_y = op.input<T>(EmbeddingBackwardIn::kDY),
        .ids = op.input<int32_t>(EmbeddingBackwardIn::kIds),
        .d_token = op.output<Wide<T>>(EmbeddingBackwardOut::kDToken),
        .accumulate_token = attributes.accumulate_token,
        .d_position = op.output<Wide<T>>(EmbeddingBackwardOut::kDPosition),
        .accumulate_position = attributes.accumulate_position};
  }
};

}  // namespace lockstep::graph

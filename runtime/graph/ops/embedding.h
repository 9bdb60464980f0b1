#pragma once
// embedding: y[b, t] = token[ids[b, t]] + position[t].
// embedding_backward: d_token (+)= sum of d_y over equal ids, d_position (+)= sum of d_y over b, in
// a fixed order. Gradients of frozen parameters are absent, and d_position without a position.
// d_token is also absent if its rows are added later (RowGradient).

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class EmbeddingIn : InputIndex { kIds, kToken, kPosition };
enum class EmbeddingOut : OutputIndex { kY };
enum class EmbeddingBackwardIn : InputIndex { kDY, kIds };
enum class EmbeddingBackwardOut : OutputIndex { kDToken, kDPosition };

struct EmbeddingAttributes {
  bool accumulate_token = false;  // backward only: d_token += instead of =
  bool accumulate_position = false;
  // backward only: the table to whose gradient the rows of d_y are added after the lanes are summed
  TensorId rows_of = kNoTensor;
};

// The part of a table's gradient that is added after the lanes are summed: rows[i] to row ids[i].
// All three are kept until the lane ends.
struct RowGradient {
  TensorId table;  // (V, C)
  TensorId ids;    // n elements i32
  TensorId rows;   // n rows of C
};
std::vector<RowGradient> row_gradients(const Graph& graph);

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
  const OpCall& call = OpCall::none();
  EmbeddingSizes sizes = {call.input_shape(EmbeddingIn::kIds)[0],
                          call.input_shape(EmbeddingIn::kIds)[1],
                          call.input_shape(EmbeddingIn::kToken)[1],
                          call.input_shape(EmbeddingIn::kToken)[0]};
  // (B, T), each in [0, V): checked by the caller
  const int32_t* ids = call.input<int32_t>(EmbeddingIn::kIds);
  const T* token = call.input<T>(EmbeddingIn::kToken);        // (V, C)
  const T* position = call.input<T>(EmbeddingIn::kPosition);  // (at least T, C), or null
  T* y = call.output<T>(EmbeddingOut::kY);                    // (B, T, C)
};

template <typename T>
struct EmbeddingBackward {
  const OpCall& call = OpCall::none();
  EmbeddingSizes sizes = {call.input_shape(EmbeddingBackwardIn::kIds)[0],
                          call.input_shape(EmbeddingBackwardIn::kIds)[1],
                          call.input_shape(EmbeddingBackwardIn::kDY).columns(),
                          call.has_output(EmbeddingBackwardOut::kDToken)
                              ? call.output_shape(EmbeddingBackwardOut::kDToken)[0]
                              : 0};
  const T* d_y = call.input<T>(EmbeddingBackwardIn::kDY);               // (B, T, C)
  const int32_t* ids = call.input<int32_t>(EmbeddingBackwardIn::kIds);  // (B, T)
  // (V, C) or null; if overwritten, rows of unused ids become 0
  Wide<T>* d_token = call.output<Wide<T>>(EmbeddingBackwardOut::kDToken);
  // += instead of =
  bool accumulate_token = call.attributes<EmbeddingAttributes>().accumulate_token;
  // (at least T, C), of which the first T rows are written; or null
  Wide<T>* d_position = call.output<Wide<T>>(EmbeddingBackwardOut::kDPosition);
  bool accumulate_position = call.attributes<EmbeddingAttributes>().accumulate_position;
};

}  // namespace lockstep::graph

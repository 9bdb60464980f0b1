#pragma once
// packed_tokens: takes samples of packed documents apart. A sample has three rows of T numbers: its
// tokens; of each the number of its document, -1: padding; and of each its position in that
// document.
//   inputs packed (B, 3, T) i32; outputs tokens, documents, positions (B, T) i32 each
// Nothing in it has a gradient.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct PackedTokensIds {
  TensorId tokens, documents, positions;  // (B, T) i32
};

namespace ops {

PackedTokensIds packed_tokens(GraphBuilder& builder, TensorId packed);

}  // namespace ops

struct PackedTokens {
  int64_t batch, time;
  const int32_t* packed;  // (B, 3, T)
  int32_t* parts[3];      // (B, T) each

  static PackedTokens of(const OpCall& op) {
    const Shape& shape = op.input_shape(0);
    return {.batch = shape[0],
            .time = shape[2],
            .packed = op.input<int32_t>(0),
            .parts = {op.output<int32_t>(0), op.output<int32_t>(1), op.output<int32_t>(2)}};
  }
};

}  // namespace lockstep

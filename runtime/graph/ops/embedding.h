#pragma once
// embedding: y[b, t] = token[ids[b, t]] + position[t].
//   inputs ids (B, T) i32, token (V, C), position (>=T, C); outputs y (B, T, C)
// embedding_backward: d_token (+)= sum of d_y over equal ids, d_position (+)= sum of d_y over b, in
// a fixed order.
//   inputs d_y, ids; outputs d_token, d_position

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct EmbeddingAttributes {
  bool accumulate_token = false;  // backward only: d_token += instead of =
  bool accumulate_position = false;
};

namespace ops {

// token (V, C)[ids (B, T) i32] + position (>=T, C) -> (B, T, C).
TensorId embedding(GraphBuilder& builder,
                   const std::string& name,
                   TensorId ids,
                   TensorId token,
                   TensorId position);

}  // namespace ops
}  // namespace lockstep

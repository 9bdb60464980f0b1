#pragma once
// packed_tokens: splits samples of packed documents. A sample has three or four rows of T numbers:
// its tokens; each token's document number, -1 for padding; each token's position in its document;
// and optionally each token's segment number.
// Positions count from first_position. It has no gradient.

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class PackedTokensIn : InputIndex { kPacked };
enum class PackedTokensOut : OutputIndex { kTokens, kDocuments, kPositions, kSegments };

struct PackedTokensAttributes {
  int32_t first_position = 0;  // added to the sample's positions
};

// (B, T) i32 each.
struct PackedTokensIds {
  TensorId tokens, documents, positions;
  TensorId segments = kNoTensor;  // only for samples with four rows
};

namespace ops {

PackedTokensIds packed_tokens(GraphBuilder& builder, TensorId packed, int32_t first_position = 0);

}  // namespace ops

struct PackedTokens {
  static constexpr int kMaxRows = 4, kPositions = 2;

  int64_t batch, rows, time;
  int32_t first_position;
  const int32_t* packed;     // (B, rows, T)
  int32_t* parts[kMaxRows];  // (B, T) each; the first `rows` are used

  // The number that is added to a row of a sample.
  LOCKSTEP_HD int32_t added_to(int64_t row) const { return row == kPositions ? first_position : 0; }

  static PackedTokens of(const OpCall& op) {
    const Shape& shape = op.input_shape(PackedTokensIn::kPacked);
    PackedTokens all = {.batch = shape[0],
                        .rows = shape[1],
                        .time = shape[2],
                        .first_position = op.attributes<PackedTokensAttributes>().first_position,
                        .packed = op.input<int32_t>(PackedTokensIn::kPacked),
                        .parts = {}};
    for (int64_t row = 0; row < all.rows; ++row)
      all.parts[row] = op.output<int32_t>({PackedTokensOut::kTokens, static_cast<size_t>(row)});
    return all;
  }
};

}  // namespace lockstep::graph

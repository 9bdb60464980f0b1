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

  const OpCall& call = OpCall::none();
  int64_t batch = call.input_shape(PackedTokensIn::kPacked)[0];
  int64_t rows = call.input_shape(PackedTokensIn::kPacked)[1];
  int64_t time = call.input_shape(PackedTokensIn::kPacked)[2];
  int32_t first_position = call.attributes<PackedTokensAttributes>().first_position;
  const int32_t* packed = call.input<int32_t>(PackedTokensIn::kPacked);  // (B, rows, T)
  // (B, T) each; null behind the `rows` that there are
  int32_t* parts[kMaxRows] = {call.output<int32_t>(PackedTokensOut::kTokens),
                              call.output<int32_t>(PackedTokensOut::kDocuments),
                              call.output<int32_t>(PackedTokensOut::kPositions),
                              call.output<int32_t>(PackedTokensOut::kSegments)};

  // The number that is added to a row of a sample.
  LOCKSTEP_HD int32_t added_to(int64_t row) const { return row == kPositions ? first_position : 0; }
};

}  // namespace lockstep::graph

// Ops of tokens, except attention. The inputs of a text encoder have Hugging Face's names.
#include <algorithm>

#include "models/onnx/from_graph/op_rows.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/graph/ops/contrastive.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/packed_tokens.h"
#include "runtime/graph/ops/token_pooling.h"

namespace lockstep::onnx {
namespace {

using namespace graph;
using IntegerList = std::vector<int64_t>;

// The rows of the table in which these ids are looked up; 0: in none.
int64_t rows_of_table(const Graph& graph, TensorId ids) {
  for (const Op& op : graph.ops)
    if (op.kind == OpKind::kEmbedding && op.inputs[EmbeddingIn::kIds] == ids)
      return graph.shape(op.inputs[EmbeddingIn::kToken])[0];
  return 0;
}

// A sample is one document, whose tokens the attention mask names. A model with one kind of segment
// has no input for it.
void write_packed_tokens(GraphWriter& writer, const Op& op) {
  const TensorId tokens = op.outputs[PackedTokensOut::kTokens],
                 segments = op.outputs[PackedTokensOut::kSegments];
  const auto input = [&](const char* name) {
    return writer.input(name, schema::TensorProto::INT64, tokens, {0, 1});
  };
  if (segments == kNoTensor) writer.refuse("a sample without segments");
  writer.set(tokens, input("input_ids"));
  writer.set(op.outputs[PackedTokensOut::kDocuments], input("attention_mask"));
  const bool several = rows_of_table(writer.graph(), segments) > 1;
  writer.set(segments, several ? input("token_type_ids") : writer.integers({0}));
  const int64_t first = op.as<PackedTokensAttributes>().first_position;
  std::string positions = writer.positions(tokens, 1);
  if (first != 0) positions = writer.node("Add", {positions, writer.integer(first)});
  writer.set(op.outputs[PackedTokensOut::kPositions], positions);
}

// Ids that are the same for all samples are (T) or (1), and their rows are broadcast by the op that
// adds them.
void write_embedding(GraphWriter& writer, const Op& op) {
  const TensorId ids = op.inputs[EmbeddingIn::kIds], position = op.inputs[EmbeddingIn::kPosition];
  std::string y =
      writer.node("Gather", {writer.plain(op.inputs[EmbeddingIn::kToken]), writer.plain(ids)});
  if (position != kNoTensor) {
    const std::string first = writer.node("Slice",
                                          {writer.plain(position),
                                           writer.integers({0}),
                                           writer.length(ids, 1),
                                           writer.integers({0})});
    y = writer.node("Add", {y, first});
  }
  writer.set(op.outputs[EmbeddingOut::kY], y);
}

// The mean of the tokens whose mask is 1; 0 if there are none.
void write_token_pooling(GraphWriter& writer, const Op& op) {
  const std::string mask = writer.node("Cast",
                                       {writer.plain(op.inputs[TokenPoolingIn::kDocuments])},
                                       {{"to", int64_t{schema::TensorProto::FLOAT}}});
  const std::string weights = writer.node("Unsqueeze", {mask, writer.integers({2})});
  const auto sum = [&](const std::string& x) {
    return writer.node("ReduceSum", {x, writer.integers({1})}, {{"keepdims", int64_t{0}}});
  };
  const std::string total =
      sum(writer.node("Mul", {writer.plain(op.inputs[TokenPoolingIn::kX]), weights}));
  const std::string count = writer.node("Max", {sum(weights), writer.number(1)});
  writer.set(op.outputs[TokenPoolingOut::kY], writer.node("Div", {total, count}));
}

// The vectors of texts; a row of zeros stays one.
void write_unit_rows(GraphWriter& writer, const Op& op) {
  const auto& attributes = op.as<UnitRowsAttributes>();
  std::string y = writer.plain(op.inputs[UnitRowsIn::kX]);
  if (attributes.normalise) {
    const std::string squares =
        writer.node("ReduceSumSquare", {y}, {{"axes", std::vector<int64_t>{-1}}});
    const std::string length = writer.node("Sqrt", {squares});
    y = writer.node("Div", {y, writer.node("Max", {length, writer.number(1e-30)})});
  }
  if (attributes.texts > 1)
    y = writer.node(
        "Reshape", {y, writer.integers({-1, writer.shape(op.outputs[UnitRowsOut::kY]).columns()})});
  writer.set(op.outputs[UnitRowsOut::kY], y);
}

constexpr OpRow kRows[] = {
    {OpKind::kPackedTokens, write_packed_tokens},
    {OpKind::kEmbedding, write_embedding},
    {OpKind::kTokenPooling, write_token_pooling},
    {OpKind::kUnitRows, write_unit_rows},
};

}  // namespace

std::span<const OpRow> token_rows() { return kRows; }

}  // namespace lockstep::onnx

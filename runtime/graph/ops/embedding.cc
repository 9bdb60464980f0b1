#include "runtime/graph/ops/embedding.h"

#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::embedding(GraphBuilder& builder,
                        const std::string& name,
                        TensorId ids,
                        TensorId token,
                        TensorId position) {
  const Shape id_shape = builder.shape(ids), token_shape = builder.shape(token);
  LOCKSTEP_CHECK(id_shape.rank() == 2 && builder[ids].dtype == DType::kI32, "{}: ids ", name);
  if (position != kNoTensor) {
    const Shape shape = builder.shape(position);
    LOCKSTEP_CHECK(shape[0] >= id_shape[1] && shape[1] == token_shape[1], "{}: position ", name);
  }
  const TensorId y = builder.activation_tensor(name, {id_shape[0], id_shape[1], token_shape[1]});
  builder.append({OpKind::kEmbedding, name, {ids, token, position}, {y}, EmbeddingAttributes{}});
  return y;
}

namespace {

OpInputs embedding_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId d_y = d_outputs[EmbeddingOut::kY], ids = op.inputs[EmbeddingIn::kIds],
                 token = op.inputs[EmbeddingIn::kToken];
  // A row for each token of the global batch travels rather than the whole table, which need not
  // wait for this op, the last one of the backward pass.
  const bool keeps_rows =
      builder.adds_few_rows(token, ids) && builder.graph()[d_y].padded_columns == 0;
  auto [d_token, accumulate_token] = std::pair(kNoTensor, false);
  if (!keeps_rows) std::tie(d_token, accumulate_token) = builder.parameter_gradient(token);
  auto [d_position, accumulate_position] = std::pair(kNoTensor, false);
  if (op.inputs[EmbeddingIn::kPosition] != kNoTensor)
    std::tie(d_position, accumulate_position) =
        builder.parameter_gradient(op.inputs[EmbeddingIn::kPosition]);
  builder.append(
      {OpKind::kEmbeddingBackward,
       op.name,
       {d_y, ids},
       {d_token, d_position},
       EmbeddingAttributes{accumulate_token, accumulate_position, keeps_rows ? token : kNoTensor}});
  return {kNoTensor, kNoTensor, kNoTensor};
}

int64_t embedding_flops(const Graph& graph, const Op& op) {
  return graph.shape(op.outputs[EmbeddingOut::kY]).elements();
}

}  // namespace

const OpSchema kEmbeddingSchema = {embedding_gradient, embedding_flops, {}};
const OpSchema kEmbeddingBackwardSchema = {nullptr, elementwise_flops<2>, {}};

std::vector<RowGradient> row_gradients(const Graph& graph) {
  std::vector<RowGradient> all;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kEmbeddingBackward) continue;
    const TensorId table = op.as<EmbeddingAttributes>().rows_of;
    if (table != kNoTensor)
      all.push_back(
          {table, op.inputs[EmbeddingBackwardIn::kIds], op.inputs[EmbeddingBackwardIn::kDY]});
  }
  return all;
}

}  // namespace lockstep::graph

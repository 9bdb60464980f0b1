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
  const auto [d_token, accumulate_token] =
      builder.parameter_gradient(op.inputs[EmbeddingIn::kToken]);
  auto [d_position, accumulate_position] = std::pair(kNoTensor, false);
  if (op.inputs[EmbeddingIn::kPosition] != kNoTensor)
    std::tie(d_position, accumulate_position) =
        builder.parameter_gradient(op.inputs[EmbeddingIn::kPosition]);
  builder.append({OpKind::kEmbeddingBackward,
                  op.name,
                  {d_outputs[EmbeddingOut::kY], op.inputs[EmbeddingIn::kIds]},
                  {d_token, d_position},
                  EmbeddingAttributes{accumulate_token, accumulate_position}});
  return {kNoTensor, kNoTensor, kNoTensor};
}

int64_t embedding_flops(const Graph& graph, const Op& op) {
  return graph.shape(op.outputs[EmbeddingOut::kY]).elements();
}

}  // namespace

const OpSchema kEmbeddingSchema = {embedding_gradient, embedding_flops, {}};
const OpSchema kEmbeddingBackwardSchema = {nullptr, elementwise_flops<2>, {}};

}  // namespace lockstep::graph

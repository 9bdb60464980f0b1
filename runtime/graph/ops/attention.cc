#include "runtime/graph/ops/attention.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::attention(GraphBuilder& builder,
                        const std::string& name,
                        TensorId qkv,
                        const AttentionAttributes& attributes,
                        TensorId documents) {
  const Shape packed = builder.shape(qkv);
  LOCKSTEP_CHECK(attributes.heads % attributes.kv_heads == 0, "{}: heads ", name);
  LOCKSTEP_CHECK(
      attributes.dropout >= 0 && attributes.dropout < 1, "{}: p = {} ", name, attributes.dropout);
  LOCKSTEP_CHECK(attributes.window >= 0, "{}: window {} ", name, attributes.window);
  LOCKSTEP_CHECK(
      packed.rank() == 3 && packed[2] % (attributes.heads + 2 * attributes.kv_heads) == 0,
      "{}: qkv {} ",
      name,
      to_string(packed));
  const AttentionShape shape = AttentionShape::of(packed, attributes);
  LOCKSTEP_CHECK(
      documents == kNoTensor || (builder.shape(documents) == Shape({shape.batch, shape.time}) &&
                                 builder[documents].dtype == DType::kI32),
      "{}: documents ",
      name);
  const TensorId y = builder.activation_tensor(name, {shape.batch, shape.time, shape.width()});
  const TensorId log_sum_exp =
      builder.statistics_tensor(name + ".log_sum_exp", {shape.batch, shape.heads, shape.time});
  AttentionAttributes adjusted = attributes;
  if (!builder.training()) adjusted.dropout = 0;
  if (adjusted.dropout > 0) adjusted.stream = builder.new_random_stream();
  builder.append({OpKind::kAttention, name, {qkv, documents}, {y, log_sum_exp}, adjusted});
  return y;
}

void set_one_document(Graph& graph) {
  for (Op& op : graph.ops) {
    const bool has_documents =
        (op.kind == OpKind::kAttention && op.inputs[AttentionIn::kDocuments] != kNoTensor) ||
        (op.kind == OpKind::kAttentionBackward &&
         op.inputs[AttentionBackwardIn::kDocuments] != kNoTensor);
    if (!has_documents) continue;
    auto attributes = op.as<AttentionAttributes>();
    attributes.one_document = true;
    op.attributes = attributes;
  }
}

namespace {

OpInputs attention_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  return first_input_gradient(builder,
                              op,
                              OpKind::kAttentionBackward,
                              {d_outputs[AttentionOut::kY],
                               op.inputs[AttentionIn::kQkv],
                               op.outputs[AttentionOut::kY],
                               op.outputs[AttentionOut::kLogSumExp],
                               op.inputs[AttentionIn::kDocuments]});
}

// The forward pass has two products of length D for each head and pair of tokens within reach, the
// backward pass five (scores are recomputed). The pairs form a band of T x T, half of it if causal.
// Documents exclude more pairs, but these are not known in advance.
int64_t attention_flops_of(const Graph& graph, TensorId qkv, const Op& op, int products) {
  const auto shape = AttentionShape::of(graph.shape(qkv), op.as<AttentionAttributes>());
  const int64_t reach = shape.window > 0 ? shape.window : shape.time;
  const int64_t band = 2 * shape.time * reach - reach * reach;
  const int64_t full = 2 * products * shape.batch * band * shape.width();
  return shape.causal ? full / 2 : full;
}

int64_t attention_flops(const Graph& graph, const Op& op) {
  return attention_flops_of(graph, op.inputs[AttentionIn::kQkv], op, 2);
}
int64_t attention_backward_flops(const Graph& graph, const Op& op) {
  return attention_flops_of(graph, op.inputs[AttentionBackwardIn::kQkv], op, 5);
}

}  // namespace

const OpSchema kAttentionSchema = {attention_gradient, attention_flops, {}};
const OpSchema kAttentionBackwardSchema = {nullptr, attention_backward_flops, {}};

}  // namespace lockstep::graph

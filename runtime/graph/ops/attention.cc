#include "runtime/graph/ops/attention.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId ops::attention(
    GraphBuilder& builder, const std::string& name, TensorId qkv, int64_t heads, bool causal) {
  const Shape shape = builder.shape(qkv);
  LOCKSTEP_CHECK(
      shape.rank() == 3 && shape[2] % (3 * heads) == 0, "{}: qkv {} ", name, to_string(shape));
  const TensorId y = builder.activation_tensor(name, {shape[0], shape[1], shape[2] / 3});
  const TensorId log_sum_exp =
      builder.statistics_tensor(name + ".log_sum_exp", {shape[0], heads, shape[1]});
  builder.append(
      {OpKind::kAttention, name, {qkv}, {y, log_sum_exp}, AttentionAttributes{heads, causal}});
  return y;
}

namespace {

std::vector<TensorId> attention_gradient(GradientBuilder& builder,
                                         const Op& op,
                                         const std::vector<TensorId>& d_outputs) {
  const TensorId d_qkv = builder.new_gradient(op.inputs[0]);
  builder.append({OpKind::kAttentionBackward,
                  op.name,
                  {d_outputs[0], op.inputs[0], op.outputs[0], op.outputs[1]},
                  {d_qkv},
                  op.attributes});
  return {d_qkv};
}

// Two products of T x T x D a head forward and five backward (the scores are computed again); half
// of each when causal.
int64_t attention_flops_of(const Graph& graph, TensorId qkv, const Op& op, int products) {
  const Shape& shape = graph.shape(qkv);
  const int64_t full = 2 * products * shape[0] * shape[1] * shape[1] * (shape[2] / 3);
  return op.as<AttentionAttributes>().causal ? full / 2 : full;
}

int64_t attention_flops(const Graph& graph, const Op& op) {
  return attention_flops_of(graph, op.inputs[0], op, 2);
}
int64_t attention_backward_flops(const Graph& graph, const Op& op) {
  return attention_flops_of(graph, op.inputs[1], op, 5);
}

}  // namespace

const OpSchema kAttentionSchema = {attention_gradient, attention_flops, {}};
const OpSchema kAttentionBackwardSchema = {nullptr, attention_backward_flops, {}};

}  // namespace lockstep

#include "runtime/graph/ops/padded_head.h"

#include <algorithm>

#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::graph {
namespace {

const Op* producer_of(const Graph& graph, TensorId tensor) {
  const auto producer = std::ranges::find_if(
      graph.ops, [&](const Op& op) { return std::ranges::count(op.outputs, tensor) > 0; });
  return producer == graph.ops.end() ? nullptr : &*producer;
}

bool is_read(const Graph& graph, TensorId tensor) {
  return std::ranges::any_of(
      graph.ops, [&](const Op& op) { return std::ranges::count(op.inputs, tensor) > 0; });
}

// Kernels of activations read rows that are close together.
bool is_head(const Op& op) {
  return op.kind == OpKind::kLinear && op.as<LinearAttributes>().activation == Activation::kNone;
}

}  // namespace

int64_t ops::pad_head(GraphBuilder& builder, TensorId weight, TensorId bias) {
  const int64_t multiple = builder.options().head_multiple, outputs = builder.shape(weight)[0];
  const int64_t padded = (outputs + multiple - 1) / multiple * multiple;
  const auto may_pad = [&](TensorId id) {
    return id == kNoTensor || builder[id].role == Role::kParameter;
  };
  if (padded > outputs && may_pad(weight) && may_pad(bias)) {
    builder[weight].padded_rows = padded;
    if (bias != kNoTensor) builder[bias].padded_rows = padded;
  }
  return padded;
}

void ops::pad_logits(GraphBuilder& builder, TensorId logits) {
  if (is_read(builder.graph(), logits)) return;
  const Op* head = producer_of(builder.graph(), logits);
  TensorId without_lora = kNoTensor;
  if (head != nullptr && head->kind == OpKind::kLoraAdd) {
    without_lora = head->inputs[LoraAddIn::kY];
    head = producer_of(builder.graph(), without_lora);
  }
  if (head == nullptr || !is_head(*head)) return;
  const int64_t columns =
      pad_head(builder, head->inputs[LinearIn::kWeight], head->inputs[LinearIn::kBias]);
  if (columns == builder.shape(logits).columns()) return;
  builder[logits].padded_columns = columns;
  if (without_lora != kNoTensor) builder[without_lora].padded_columns = columns;
}

}  // namespace lockstep::graph

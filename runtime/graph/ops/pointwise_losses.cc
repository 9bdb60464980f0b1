#include "runtime/graph/ops/pointwise_losses.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::binary_cross_entropy(GraphBuilder& builder, TensorId logits, TensorId targets) {
  LOCKSTEP_CHECK(builder.shape(logits).elements() == builder.shape(targets).elements());
  const std::vector<float>& weights = builder.options().class_weights;
  BinaryCrossEntropyAttributes attributes;
  if (!weights.empty()) {
    LOCKSTEP_CHECK(weights.size() == 2 && builder.shape(logits).columns() == 1);
    attributes.weights[0] = weights[0];
    attributes.weights[1] = weights[1];
    attributes.weighted = true;
  }
  const std::vector<float>& positive = builder.options().pos_weight;
  const auto outputs = static_cast<size_t>(builder.shape(logits).columns());
  LOCKSTEP_CHECK(positive.size() <= 1 || positive.size() == outputs);
  LOCKSTEP_CHECK(positive.empty() || weights.empty());
  attributes.pos_weight = positive;
  if (!positive.empty()) attributes.pos_weight.resize(outputs, positive.front());
  builder.append_loss(OpKind::kBinaryCrossEntropy, logits, targets, attributes);
}

void ops::mean_squared_error(GraphBuilder& builder, TensorId predictions, TensorId targets) {
  LOCKSTEP_CHECK(builder.shape(predictions).elements() == builder.shape(targets).elements());
  builder.append_loss(OpKind::kMeanSquaredError, predictions, targets, {});
}

void ops::mean_absolute_error(GraphBuilder& builder, TensorId predictions, TensorId targets) {
  LOCKSTEP_CHECK(builder.shape(predictions).elements() == builder.shape(targets).elements());
  builder.append_loss(OpKind::kMeanAbsoluteError, predictions, targets, {});
}

void ops::huber(GraphBuilder& builder, TensorId predictions, TensorId targets, float delta) {
  LOCKSTEP_CHECK(builder.shape(predictions).elements() == builder.shape(targets).elements());
  builder.append_loss(OpKind::kHuber, predictions, targets, HuberAttributes{.delta = delta});
}

const OpSchema kBinaryCrossEntropySchema = loss_schema(elementwise_flops<12>);
const OpSchema kMeanSquaredErrorSchema = loss_schema(elementwise_flops<4>);
const OpSchema kMeanAbsoluteErrorSchema = loss_schema(elementwise_flops<4>);
const OpSchema kHuberSchema = loss_schema(elementwise_flops<6>);

}  // namespace lockstep::graph

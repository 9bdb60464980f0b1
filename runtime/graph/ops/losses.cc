// Losses: softmax_cross_entropy, binary_cross_entropy (on logits), mean_squared_error.
//   inputs  prediction (rows, O), target: class (rows) i32 | probability (rows, O) | value (rows,
//   O) outputs statistics (4) f64: sum of the rows' losses, rows counted, rows predicted correctly,
//   0;
//           in training also d_prediction = gradient of the loss SUM times
//           LaneContext::gradient_scale, over the prediction
// Where LaneContext::mix is below 1, softmax_cross_entropy has mixtures of two targets.
// A loss is the root of differentiation and needs no backward op: the gradient comes out of the
// forward pass.
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

void GraphBuilder::loss(OpKind kind,
                        TensorId prediction,
                        TensorId target,
                        LossAttributes attributes) {
  const TensorId statistics = tensor("statistics", {kStatisticCount}, DType::kF64, Role::kResult);
  graph_.ops.push_back(
      {kind, schema_of(kind).name, {prediction, target}, {statistics}, attributes});
  graph_.result = statistics;
  graph_.loss_rows_per_sample = graph_.shape(prediction).rows() / graph_.shape(prediction)[0];
}

void GraphBuilder::softmax_cross_entropy(TensorId logits, TensorId targets, float label_smoothing) {
  LOCKSTEP_CHECK(graph_.shape(logits).rows() == graph_.shape(targets).elements());
  LOCKSTEP_CHECK(graph_[targets].dtype == DType::kI32);
  // The kernels of a large vocabulary want rows that begin on aligned addresses.
  const int64_t unit = options_.logits_alignment / static_cast<int64_t>(size_of(options_.compute));
  if (unit > 1) {
    const int64_t columns = graph_.shape(logits).columns();
    graph_[logits].padded_columns = (columns + unit - 1) / unit * unit;
  }
  loss(OpKind::kSoftmaxCrossEntropy, logits, targets, {label_smoothing, -1});
}

void GraphBuilder::binary_cross_entropy(TensorId logits, TensorId targets) {
  LOCKSTEP_CHECK(graph_.shape(logits).elements() == graph_.shape(targets).elements());
  loss(OpKind::kBinaryCrossEntropy, logits, targets, {});
}

void GraphBuilder::mean_squared_error(TensorId predictions, TensorId targets) {
  LOCKSTEP_CHECK(graph_.shape(predictions).elements() == graph_.shape(targets).elements());
  loss(OpKind::kMeanSquaredError, predictions, targets, {});
}

const OpSchema kSoftmaxCrossEntropySchema = {
    "softmax_cross_entropy", nullptr, elementwise_flops<8>, {{1, 0}}};
const OpSchema kBinaryCrossEntropySchema = {
    "binary_cross_entropy", nullptr, elementwise_flops<12>, {{1, 0}}};
const OpSchema kMeanSquaredErrorSchema = {
    "mean_squared_error", nullptr, elementwise_flops<4>, {{1, 0}}};

}  // namespace lockstep

#include "runtime/graph/ops/linear_cross_entropy.h"

#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/padded_head.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::linear_cross_entropy(GraphBuilder& builder,
                               TensorId x,
                               TensorId weight,
                               TensorId bias,
                               TensorId targets,
                               float label_smoothing,
                               int64_t rows_at_a_time) {
  const Shape w_shape = builder.shape(weight);
  LOCKSTEP_CHECK(builder.shape(x).columns() == w_shape[1] && w_shape.rank() == 2);
  LOCKSTEP_CHECK(builder.shape(x).rows() == builder.shape(targets).elements());
  LOCKSTEP_CHECK(bias == kNoTensor || builder.shape(bias) == Shape({w_shape[0]}));
  LOCKSTEP_CHECK(builder[targets].dtype == DType::kI32 && rows_at_a_time > 0);
  const LinearCrossEntropyAttributes attributes = {.label_smoothing = label_smoothing,
                                                   .rows = rows_at_a_time,
                                                   .stride = pad_head(builder, weight, bias)};
  LOCKSTEP_CHECK(builder.options().class_weights.empty());
  std::vector<TensorId> parameters = {weight};
  if (bias != kNoTensor) parameters.push_back(bias);
  builder.append_loss(OpKind::kLinearCrossEntropy, x, targets, attributes, parameters);
}

namespace {

// The product of the logits and, in training, those of both gradients.
int64_t linear_cross_entropy_flops(const Graph& graph, const Op& op) {
  const int64_t rows = graph.shape(op.inputs[LinearCrossEntropyIn::kX]).rows();
  const Shape weight = graph.shape(op.inputs[LinearCrossEntropyIn::kWeight]);
  const auto made = [&](OutputName output) { return op.outputs[output] != kNoTensor ? 1 : 0; };
  const int products = 1 + made(LinearCrossEntropyOut::kDX) + made(LinearCrossEntropyOut::kDWeight);
  return 2 * products * rows * weight.elements() + 8 * rows * weight[0];
}

}  // namespace

const OpSchema kLinearCrossEntropySchema = {
    nullptr, linear_cross_entropy_flops, {{LinearCrossEntropyOut::kDX, LinearCrossEntropyIn::kX}}};

}  // namespace lockstep::graph

#include "runtime/graph/ops/linear_cross_entropy.h"

#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/padded_head.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

namespace {

// Checks the operands, and pads the head.
LinearCrossEntropyAttributes attributes_of(GraphBuilder& builder,
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
  LOCKSTEP_CHECK(builder.options().class_weights.empty());
  return {.label_smoothing = label_smoothing,
          .rows = rows_at_a_time,
          .stride = ops::pad_head(builder, weight, bias)};
}

}  // namespace

void ops::linear_cross_entropy(GraphBuilder& builder,
                               TensorId x,
                               TensorId weight,
                               TensorId bias,
                               TensorId targets,
                               float label_smoothing,
                               int64_t rows_at_a_time) {
  const auto attributes =
      attributes_of(builder, x, weight, bias, targets, label_smoothing, rows_at_a_time);
  std::vector<TensorId> parameters = {weight};
  if (bias != kNoTensor) parameters.push_back(bias);
  builder.append_loss(OpKind::kLinearCrossEntropy, x, targets, attributes, parameters);
}

TensorId ops::sequence_log_prob(GraphBuilder& builder,
                                const std::string& name,
                                TensorId x,
                                TensorId weight,
                                TensorId bias,
                                TensorId targets,
                                const Shape& sums,
                                int64_t rows_at_a_time) {
  for (const TensorId parameter : {weight, bias})
    LOCKSTEP_CHECK(parameter == kNoTensor || builder[parameter].role == Role::kParameter);
  LOCKSTEP_CHECK(sums.elements() == builder.shape(targets).rows());
  const auto attributes = attributes_of(builder, x, weight, bias, targets, 0, rows_at_a_time);
  const TensorId result = builder.statistics_tensor(name, sums);
  builder.append(
      {OpKind::kSequenceLogProb, name, {x, targets, weight, bias}, {result}, attributes});
  return result;
}

namespace {

OpInputs sequence_log_prob_gradient(GradientBuilder& builder,
                                    const Op& op,
                                    const OpOutputs& d_outputs) {
  const TensorId x = op.inputs[LinearCrossEntropyIn::kX],
                 weight = op.inputs[LinearCrossEntropyIn::kWeight],
                 bias = op.inputs[LinearCrossEntropyIn::kBias];
  auto attributes = op.as<LinearCrossEntropyAttributes>();
  const auto [d_weight, accumulate_weight] = builder.parameter_gradient(weight);
  const auto [d_bias, accumulate_bias] = builder.parameter_gradient(bias);
  attributes.accumulate_weight = accumulate_weight;
  attributes.accumulate_bias = accumulate_bias;
  const TensorId d_x = builder.new_gradient(x);
  builder.append({OpKind::kSequenceLogProbBackward,
                  op.name,
                  {x,
                   op.inputs[LinearCrossEntropyIn::kTargets],
                   weight,
                   bias,
                   d_outputs[LinearCrossEntropyOut::kSums]},
                  {kNoTensor, d_x, d_weight, d_bias},
                  attributes});
  return {d_x, kNoTensor, kNoTensor, kNoTensor};
}

// The product of the logits and, with gradients, those of both of them.
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
const OpSchema kSequenceLogProbSchema = {
    sequence_log_prob_gradient, linear_cross_entropy_flops, {}};
const OpSchema kSequenceLogProbBackwardSchema = {
    nullptr, linear_cross_entropy_flops, {{LinearCrossEntropyOut::kDX, LinearCrossEntropyIn::kX}}};

}  // namespace lockstep::graph

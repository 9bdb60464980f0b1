// layer_norm: sum = x + delta; y = (sum - mean) * rstd * gain + bias over the last dimension.
//   inputs  x (..., C), delta (..., C) or none, gain (C), bias (C) or none
//   outputs y (..., C), sum (..., C) or none where there is no delta, mean (rows), rstd (rows)
// layer_norm_backward: d_sum = gradient through the norm + d_residual; also d_gain, d_bias (+)=.
//   inputs  d_y, d_residual or none (the gradient that reaches `sum` from elsewhere), sum (x where
//   no delta), gain, mean, rstd outputs d_sum (the gradient of both x and delta), d_gain, d_bias or
//   none
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

std::pair<TensorId, TensorId> GraphBuilder::layer_norm_residual(
    const std::string& name, TensorId x, TensorId delta, TensorId gain, TensorId bias) {
  const Shape shape = graph_.shape(x);
  LOCKSTEP_CHECK(graph_.shape(gain) == Shape({shape.columns()}), "{}: gain ", name);
  LOCKSTEP_CHECK(delta == kNoTensor || graph_.shape(delta) == shape, "{}: delta ", name);
  const TensorId y = activation_tensor(name, shape);
  const TensorId sum = delta == kNoTensor ? kNoTensor : activation_tensor(name + ".sum", shape);
  const TensorId mean = statistics_tensor(name + ".mean", {shape.rows()});
  const TensorId rstd = statistics_tensor(name + ".rstd", {shape.rows()});
  graph_.ops.push_back({OpKind::kLayerNorm,
                        name,
                        {x, delta, gain, bias},
                        {y, sum, mean, rstd},
                        LayerNormAttributes{}});
  return {sum == kNoTensor ? x : sum, y};
}

TensorId GraphBuilder::layer_norm(const std::string& name,
                                  TensorId x,
                                  TensorId gain,
                                  TensorId bias) {
  return layer_norm_residual(name, x, kNoTensor, gain, bias).second;
}

namespace {

std::vector<TensorId> layer_norm_gradient(GradientBuilder& builder,
                                          const Op& op,
                                          const std::vector<TensorId>& d_outputs) {
  const bool residual = op.inputs[1] != kNoTensor;
  const TensorId sum = residual ? op.outputs[1] : op.inputs[0];
  const TensorId d_sum = builder.new_gradient(sum);
  const auto [d_gain, accumulate_gain] = builder.parameter_gradient(op.inputs[2]);
  const auto [d_bias, accumulate_bias] = builder.parameter_gradient(op.inputs[3]);
  LOCKSTEP_CHECK(
      !accumulate_gain && !accumulate_bias, "{}: parameters of a norm cannot be shared ", op.name);
  builder.append({OpKind::kLayerNormBackward,
                  op.name,
                  {d_outputs[0],
                   residual ? d_outputs[1] : kNoTensor,
                   sum,
                   op.inputs[2],
                   op.outputs[2],
                   op.outputs[3]},
                  {d_sum, d_gain, d_bias},
                  op.attributes});
  return {d_sum, residual ? d_sum : kNoTensor, kNoTensor, kNoTensor};
}

}  // namespace

const OpSchema kLayerNormSchema = {
    "layer_norm", layer_norm_gradient, elementwise_flops<9>, {{1, 0}, {1, 1}}};
const OpSchema kLayerNormBackwardSchema = {
    "layer_norm_backward", nullptr, elementwise_flops<14>, {{0, 1}, {0, 0}}};

}  // namespace lockstep

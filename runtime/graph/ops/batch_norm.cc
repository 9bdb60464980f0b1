// batch_norm: y = activation((x - mean) rstd gain + bias + delta), rstd = 1 / sqrt(variance +
// epsilon), by channel. In training mean and (biased) variance are those of this lane's batch, else
// the running ones.
//   inputs  x (..., C), delta (..., C) or none, gain (C), bias (C), running_mean (C),
//   running_variance (C), statistics (L, 2, C) f32 of all lanes, or none
//   outputs y (..., C); in training also mean (C) and variance (C), f32
// batch_norm_backward: with g = d_y where the activation passes it, xhat = (x - mean) rstd and sums
// over the M rows, d_bias = sum g, d_gain = sum g xhat, d_x = gain rstd (g - d_bias / M - xhat
// d_gain / M), d_delta = g. The running statistics' gradients are what this lane shows of them: its
// mean and its unbiased variance.
//   inputs  d_y (..., C), y (..., C) where both delta and an activation are (elsewhere what the
//   activation passed follows from x), x, gain, bias, mean, variance
//   outputs d_x, d_delta or none (no delta, or no activation: then it is d_y), d_gain, d_bias,
//   d_running_mean, d_running_variance
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.
//
// Synchronised over L lanes, what is summed over rows meets the other lanes on the way. Forward:
//   batch_statistics: x -> (2, C) f32, mean and biased variance of the lane;
//   gather_lanes: (2, C) -> (L, 2, C), every lane's; batch_norm with these.
// Backward, with the same formulas and M rows of all lanes:
//   batch_norm_sums: inputs as batch_norm_backward; outputs sums (2, C) f32 of g and of g xhat,
//   d_delta, d_gain, d_bias, d_running_mean, d_running_variance;
//   gather_lanes: sums -> (L, 2, C); batch_norm_input_gradient: the inputs again, d_delta in place
//   of d_y (and no y) where there is one, and all sums -> d_x.
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::batch_norm(const std::string& name,
                                  TensorId x,
                                  TensorId delta,
                                  const BatchNormParameters& p,
                                  const BatchNormAttributes& attributes) {
  const Shape shape = graph_.shape(x), channels = {shape.columns()};
  for (const TensorId id : {p.gain, p.bias, p.running_mean, p.running_variance})
    LOCKSTEP_CHECK(graph_.shape(id) == channels, "{}: {} ", name, graph_[id].name);
  LOCKSTEP_CHECK(delta == kNoTensor || graph_.shape(delta) == shape, "{}: delta ", name);
  LOCKSTEP_CHECK(
      attributes.activation == Activation::kNone || attributes.activation == Activation::kRelu,
      "{}: activation ",
      name);
  const TensorId y = activation_tensor(name, shape);
  std::vector<TensorId> outputs = {y};
  if (training()) {
    outputs.push_back(statistics_tensor(name + ".mean", channels));
    outputs.push_back(statistics_tensor(name + ".variance", channels));
  }
  BatchNormAttributes done = attributes;
  done.synchronised = attributes.synchronised && training() && options_.lanes > 1;
  if (done.synchronised) done.lanes = options_.lanes;
  TensorId statistics = kNoTensor;
  if (done.synchronised) {
    const int64_t c = shape.columns();
    const TensorId mine = statistics_tensor(name + ".lane", {2, c});
    graph_.ops.push_back({OpKind::kBatchStatistics, name, {x}, {mine}, done});
    statistics = statistics_tensor(name + ".lanes", {options_.lanes, 2, c});
    graph_.ops.push_back({OpKind::kGatherLanes, name, {mine}, {statistics}, {}});
  }
  graph_.ops.push_back({OpKind::kBatchNorm,
                        name,
                        {x, delta, p.gain, p.bias, p.running_mean, p.running_variance, statistics},
                        outputs,
                        done});
  return y;
}

namespace {

// `inputs` and `outputs` as of batch_norm_backward.
void append_synchronised(GradientBuilder& builder,
                         const Op& op,
                         std::vector<TensorId> inputs,
                         std::vector<TensorId> outputs) {
  const TensorId d_x = outputs[0], d_delta = outputs[1], lanes = op.inputs[6];
  const int64_t channels = builder.graph().shape(lanes)[2];
  const TensorId sums = builder.new_statistics(op.name + ".sums", {2, channels});
  const TensorId all = builder.new_statistics(op.name + ".all_sums", builder.graph().shape(lanes));
  outputs[0] = sums;
  builder.append({OpKind::kBatchNormSums, op.name, inputs, outputs, op.attributes});
  builder.append({OpKind::kGatherLanes, op.name, {sums}, {all}, {}});
  if (d_delta != kNoTensor) {
    inputs[0] = d_delta;  // masked already
    inputs[1] = kNoTensor;
  }
  BatchNormAttributes attributes = op.as<BatchNormAttributes>();
  if (d_delta != kNoTensor) attributes.activation = Activation::kNone;
  inputs.push_back(all);
  builder.append({OpKind::kBatchNormInputGradient, op.name, std::move(inputs), {d_x}, attributes});
}

std::vector<TensorId> batch_norm_gradient(GradientBuilder& builder,
                                          const Op& op,
                                          const std::vector<TensorId>& d_outputs) {
  const TensorId x = op.inputs[0], delta = op.inputs[1], d_y = d_outputs[0];
  const bool masked = op.as<BatchNormAttributes>().activation != Activation::kNone;
  const bool to_delta = delta != kNoTensor && builder.needs_gradient(delta);
  const TensorId d_x = builder.new_gradient(x);
  const TensorId d_delta = to_delta && masked ? builder.new_gradient(delta) : kNoTensor;
  std::vector<TensorId> outputs = {d_x, d_delta};
  for (size_t i = 2; i < 6; ++i) {
    const auto [gradient, accumulate] = builder.parameter_gradient(op.inputs[i]);
    LOCKSTEP_CHECK(!accumulate, "{}: parameters of a norm cannot be shared ", op.name);
    outputs.push_back(gradient);
  }
  std::vector<TensorId> inputs = {d_y,
                                  delta != kNoTensor && masked ? op.outputs[0] : kNoTensor,
                                  x,
                                  op.inputs[2],
                                  op.inputs[3],
                                  op.outputs[1],
                                  op.outputs[2]};
  if (op.as<BatchNormAttributes>().synchronised) {
    append_synchronised(builder, op, std::move(inputs), outputs);
  } else {
    builder.append(
        {OpKind::kBatchNormBackward, op.name, std::move(inputs), outputs, op.attributes});
  }
  const TensorId reaches_delta = masked ? d_delta : d_y;
  std::vector<TensorId> gradients(op.inputs.size(), kNoTensor);
  gradients[0] = d_x;
  if (to_delta) gradients[1] = reaches_delta;
  return gradients;
}

}  // namespace

// All of x is read before any of y is written; beyond that both work element by element.
const OpSchema kBatchNormSchema = {
    "batch_norm", batch_norm_gradient, elementwise_flops<kBatchNormFlops>, {{0, 0}, {0, 1}}};
const OpSchema kBatchNormBackwardSchema = {
    "batch_norm_backward", nullptr, elementwise_flops<12>, {{0, 2}, {0, 0}, {1, 0}, {1, 1}}};
const OpSchema kBatchStatisticsSchema = {"batch_statistics", nullptr, elementwise_flops<3>, {}};
const OpSchema kBatchNormSumsSchema = {
    "batch_norm_sums", nullptr, elementwise_flops<6>, {{1, 0}, {1, 1}}};
const OpSchema kBatchNormInputGradientSchema = {
    "batch_norm_input_gradient", nullptr, elementwise_flops<6>, {{0, 2}, {0, 0}}};
// Done by the executor, which has the lanes.
const OpSchema kGatherLanesSchema = {"gather_lanes", nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep

#include "runtime/graph/ops/batch_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::batch_norm(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         TensorId delta,
                         const BatchNormParameters& p,
                         const BatchNormAttributes& attributes) {
  const Shape shape = builder.shape(x), channels = {shape.columns()};
  for (const TensorId id : {p.gamma, p.beta, p.running_mean, p.running_variance})
    LOCKSTEP_CHECK(builder.shape(id) == channels, "{}: {} ", name, builder[id].name);
  LOCKSTEP_CHECK(delta == kNoTensor || builder.shape(delta) == shape, "{}: delta ", name);
  LOCKSTEP_CHECK(
      attributes.activation == Activation::kNone || attributes.activation == Activation::kRelu,
      "{}: activation ",
      name);
  const TensorId y = builder.activation_tensor(name, shape);
  std::vector<TensorId> outputs = {y};
  if (builder.training()) {
    outputs.push_back(builder.statistics_tensor(name + ".mean", channels));
    outputs.push_back(builder.statistics_tensor(name + ".variance", channels));
  }
  BatchNormAttributes done = attributes;
  done.synchronised = attributes.synchronised && builder.training() && builder.options().lanes > 1;
  if (done.synchronised) done.lanes = builder.options().lanes;
  TensorId statistics = kNoTensor;
  if (done.synchronised) {
    const int64_t c = shape.columns();
    const TensorId mine = builder.statistics_tensor(name + ".lane", {2, c});
    builder.append({OpKind::kBatchStatistics, name, {x}, {mine}, done});
    statistics = builder.statistics_tensor(name + ".lanes", {builder.options().lanes, 2, c});
    builder.append({OpKind::kGatherLanes, name, {mine}, {statistics}, {}});
  }
  builder.append({OpKind::kBatchNorm,
                  name,
                  {x, delta, p.gamma, p.beta, p.running_mean, p.running_variance, statistics},
                  outputs,
                  done});
  return y;
}

namespace {

// `inputs` and `outputs`: those of batch_norm_backward.
void append_synchronised(GradientBuilder& builder,
                         const Op& op,
                         OpInputs inputs,
                         OpOutputs outputs) {
  using Out = BatchNormBackwardOut;
  const TensorId d_x = outputs[Out::kDX], d_delta = outputs[Out::kDDelta];
  const TensorId lanes = op.inputs[BatchNormIn::kLaneStatistics];
  const int64_t channels = builder.graph().shape(lanes)[2];
  const TensorId sums = builder.new_statistics(op.name + ".sums", {2, channels});
  const TensorId all = builder.new_statistics(op.name + ".all_sums", builder.graph().shape(lanes));
  outputs[Out::kSums] = sums;
  builder.append({OpKind::kBatchNormSums, op.name, inputs, outputs, op.attributes});
  builder.append({OpKind::kGatherLanes, op.name, {sums}, {all}, {}});
  if (d_delta != kNoTensor) {
    inputs[BatchNormBackwardIn::kDY] = d_delta;  // already masked by the activation
    inputs[BatchNormBackwardIn::kY] = kNoTensor;
  }
  BatchNormAttributes attributes = op.as<BatchNormAttributes>();
  if (d_delta != kNoTensor) attributes.activation = Activation::kNone;
  inputs[BatchNormBackwardIn::kAllSums] = all;
  builder.append({OpKind::kBatchNormInputGradient, op.name, std::move(inputs), {d_x}, attributes});
}

// The backward rule of a norm below which nothing is trained.
OpInputs follow_batch(GradientBuilder& builder, const Op& op) {
  const auto& attributes = op.as<BatchNormAttributes>();
  const int64_t lanes = attributes.synchronised ? attributes.lanes : 1;
  builder.append({OpKind::kBatchNormRunning,
                  op.name,
                  {op.outputs[BatchNormOut::kMean], op.outputs[BatchNormOut::kVariance]},
                  {unshared_gradient(builder, op, op.inputs[BatchNormIn::kRunningMean]),
                   unshared_gradient(builder, op, op.inputs[BatchNormIn::kRunningVariance])},
                  BatchNormRunningAttributes{
                      lanes * builder.graph().shape(op.inputs[BatchNormIn::kX]).rows()}});
  return OpInputs(op.inputs.size(), kNoTensor);
}

OpInputs batch_norm_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId x = op.inputs[BatchNormIn::kX], delta = op.inputs[BatchNormIn::kDelta],
                 d_y = d_outputs[BatchNormOut::kY];
  if (d_y == kNoTensor) return follow_batch(builder, op);
  const bool masked = op.as<BatchNormAttributes>().activation != Activation::kNone;
  const bool to_delta = delta != kNoTensor && builder.needs_gradient(delta);
  const TensorId d_x = builder.new_gradient(x);
  const TensorId d_delta = to_delta && masked ? builder.new_gradient(delta) : kNoTensor;
  const TensorId gamma = op.inputs[BatchNormIn::kGamma], beta = op.inputs[BatchNormIn::kBeta];
  const OpOutputs outputs = {
      d_x,
      d_delta,
      unshared_gradient(builder, op, gamma),
      unshared_gradient(builder, op, beta),
      unshared_gradient(builder, op, op.inputs[BatchNormIn::kRunningMean]),
      unshared_gradient(builder, op, op.inputs[BatchNormIn::kRunningVariance])};
  OpInputs inputs = {d_y,
                     kNoTensor,
                     delta != kNoTensor && masked ? op.outputs[BatchNormOut::kY] : kNoTensor,
                     kNoTensor,
                     x,
                     gamma,
                     beta,
                     op.outputs[BatchNormOut::kMean],
                     op.outputs[BatchNormOut::kVariance],
                     kNoTensor};
  if (op.as<BatchNormAttributes>().synchronised) {
    append_synchronised(builder, op, std::move(inputs), outputs);
  } else {
    builder.append(
        {OpKind::kBatchNormBackward, op.name, std::move(inputs), outputs, op.attributes});
  }
  const TensorId reaches_delta = masked ? d_delta : d_y;
  OpInputs gradients(op.inputs.size(), kNoTensor);
  gradients[BatchNormIn::kX] = d_x;
  gradients[BatchNormIn::kGamma] =
      passed_on(builder, op.name, gamma, outputs[BatchNormBackwardOut::kDGamma]);
  gradients[BatchNormIn::kBeta] =
      passed_on(builder, op.name, beta, outputs[BatchNormBackwardOut::kDBeta]);
  if (to_delta) gradients[BatchNormIn::kDelta] = reaches_delta;
  return gradients;
}

}  // namespace

// All of x is read before any of y is written; apart from that, both work element by element.
const OpSchema kBatchNormSchema = {
    batch_norm_gradient,
    elementwise_flops<kBatchNormFlops>,
    {{BatchNormOut::kY, BatchNormIn::kX}, {BatchNormOut::kY, BatchNormIn::kDelta}}};
const OpSchema kBatchNormBackwardSchema = {
    nullptr,
    elementwise_flops<12>,
    {{BatchNormBackwardOut::kDX, BatchNormBackwardIn::kX},
     {BatchNormBackwardOut::kDX, BatchNormBackwardIn::kDY},
     {BatchNormBackwardOut::kDX, BatchNormBackwardIn::kDY2},
     {BatchNormBackwardOut::kDDelta, BatchNormBackwardIn::kDY},
     {BatchNormBackwardOut::kDDelta, BatchNormBackwardIn::kDY2},
     {BatchNormBackwardOut::kDDelta, BatchNormBackwardIn::kY}}};
const OpSchema kBatchStatisticsSchema = {nullptr, elementwise_flops<3>, {}};
const OpSchema kBatchNormSumsSchema = {nullptr,
                                       elementwise_flops<6>,
                                       {{BatchNormBackwardOut::kDDelta, BatchNormBackwardIn::kDY},
                                        {BatchNormBackwardOut::kDDelta, BatchNormBackwardIn::kDY2},
                                        {BatchNormBackwardOut::kDDelta, BatchNormBackwardIn::kY}}};
const OpSchema kBatchNormRunningSchema = {nullptr, elementwise_flops<1>, {}};
const OpSchema kBatchNormInputGradientSchema = {
    nullptr,
    elementwise_flops<6>,
    {{BatchNormBackwardOut::kDX, BatchNormBackwardIn::kX},
     {BatchNormBackwardOut::kDX, BatchNormBackwardIn::kDY}}};
// Implemented by the executor, which has the lanes.
const OpSchema kGatherLanesSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep::graph

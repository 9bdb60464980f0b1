#include "runtime/graph/ops/row_norm.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

std::pair<TensorId, TensorId> append_norm(GraphBuilder& builder,
                                          OpKind kind,
                                          const std::string& name,
                                          const OpInputs& inputs,
                                          float epsilon) {
  const TensorId x = inputs[RowNormIn::kX], delta = inputs[RowNormIn::kDelta];
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(
      builder.shape(inputs[RowNormIn::kGamma]) == Shape({shape.columns()}), "{}: gamma ", name);
  LOCKSTEP_CHECK(delta == kNoTensor || builder.shape(delta) == shape, "{}: delta ", name);
  const auto statistics = [&](const char* suffix) {
    return builder.statistics_tensor(name + suffix, {shape.rows()});
  };
  const TensorId y = builder.activation_tensor(name, shape);
  const TensorId sum =
      delta == kNoTensor ? kNoTensor : builder.activation_tensor(name + ".sum", shape);
  const TensorId mean = kind == OpKind::kLayerNorm ? statistics(".mean") : kNoTensor;
  const TensorId rstd = statistics(".rstd");
  builder.append({kind, name, inputs, {y, sum, mean, rstd}, RowNormAttributes{epsilon}});
  return {sum == kNoTensor ? x : sum, y};
}

template <OpKind kBackward>
OpInputs norm_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  // If y feeds only ops without gradients, the gradient of the sum is all there is.
  if (d_outputs[RowNormOut::kY] == kNoTensor)
    return {d_outputs[RowNormOut::kSum], d_outputs[RowNormOut::kSum], kNoTensor, kNoTensor};
  const bool residual = op.inputs[RowNormIn::kDelta] != kNoTensor;
  const TensorId sum = residual ? op.outputs[RowNormOut::kSum] : op.inputs[RowNormIn::kX];
  const TensorId d_sum = builder.new_gradient(sum);
  const TensorId d_gamma = unshared_gradient(builder, op, op.inputs[RowNormIn::kGamma]);
  const TensorId d_beta = unshared_gradient(builder, op, op.inputs[RowNormIn::kBeta]);
  builder.append({kBackward,
                  op.name,
                  {d_outputs[RowNormOut::kY],
                   residual ? d_outputs[RowNormOut::kSum] : kNoTensor,
                   sum,
                   op.inputs[RowNormIn::kGamma],
                   op.outputs[RowNormOut::kMean],
                   op.outputs[RowNormOut::kRstd]},
                  {d_sum, d_gamma, d_beta},
                  op.attributes});
  return {d_sum, residual ? d_sum : kNoTensor, kNoTensor, kNoTensor};
}

// kFlops: per element.
template <int kFlops, OpKind kBackward>
OpSchema schema() {
  return {norm_gradient<kBackward>,
          elementwise_flops<kFlops>,
          {{RowNormOut::kSum, RowNormIn::kX}, {RowNormOut::kSum, RowNormIn::kDelta}},
          /*joins_lanes=*/true};
}

template <int kFlops>
OpSchema backward_schema() {
  return {nullptr,
          elementwise_flops<kFlops>,
          {{RowNormBackwardOut::kDSum, RowNormBackwardIn::kDResidual},
           {RowNormBackwardOut::kDSum, RowNormBackwardIn::kDY}}};
}

}  // namespace

std::pair<TensorId, TensorId> ops::layer_norm(GraphBuilder& builder,
                                              const std::string& name,
                                              TensorId x,
                                              TensorId delta,
                                              TensorId gamma,
                                              TensorId beta,
                                              float epsilon) {
  return append_norm(builder, OpKind::kLayerNorm, name, {x, delta, gamma, beta}, epsilon);
}

std::pair<TensorId, TensorId> ops::rms_norm(GraphBuilder& builder,
                                            const std::string& name,
                                            TensorId x,
                                            TensorId delta,
                                            TensorId gamma,
                                            float epsilon) {
  return append_norm(builder, OpKind::kRmsNorm, name, {x, delta, gamma, kNoTensor}, epsilon);
}

const OpSchema kLayerNormSchema = schema<9, OpKind::kLayerNormBackward>();
const OpSchema kLayerNormBackwardSchema = backward_schema<14>();
const OpSchema kRmsNormSchema = schema<4, OpKind::kRmsNormBackward>();
const OpSchema kRmsNormBackwardSchema = backward_schema<9>();

}  // namespace lockstep::graph

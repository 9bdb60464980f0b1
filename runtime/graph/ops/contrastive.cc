#include "runtime/graph/ops/contrastive.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// Appends gather_lanes of the lane's rows.
TensorId gather(GraphBuilder& builder, const std::string& name, TensorId mine, Shape all) {
  const TensorId gathered = builder.statistics_tensor(name, all);
  builder[gathered].detached = true;
  builder.append({OpKind::kGatherLanes, name, {mine}, {gathered}, {}});
  return gathered;
}

TensorId unit_rows(GraphBuilder& builder,
                   TensorId x,
                   TensorId logit_scale,
                   const UnitRowsAttributes& attributes) {
  const Shape shape = builder.shape(x);
  const int64_t rows = shape.rows(), width = shape.columns(), texts = attributes.texts;
  LOCKSTEP_CHECK(shape.rank() == 2 && rows % texts == 0, "vectors {} ", to_string(shape));
  const TensorId y = builder.statistics_tensor(
      "vectors", attributes.by_text ? Shape({rows, width}) : Shape({rows / texts, texts * width}));
  std::vector<TensorId> outputs = {y};
  if (builder.training()) outputs.push_back(builder.statistics_tensor("vectors.inverse", {rows}));
  builder.append({OpKind::kUnitRows, "vectors", {x, logit_scale}, outputs, attributes});
  return y;
}

}  // namespace

void ops::contrastive(GraphBuilder& builder,
                      TensorId x,
                      int64_t texts,
                      TensorId targets,
                      const ContrastiveConfig& config) {
  const int64_t batch = builder.shape(x).rows() / texts;
  const float scale = 1 / config.temperature;
  const TensorId logit_scale =
      config.learn_temperature
          ? builder.parameter("logit_scale",
                              {1},
                              {Initializer::Kind::kConstant, -std::log(config.temperature)},
                              /*decay=*/false)
          : kNoTensor;
  UnitRowsAttributes vectors = {.texts = texts, .normalise = config.normalise, .scale = scale};
  if (builder.options().purpose == Purpose::kInference)
    return builder.keep(unit_rows(builder, x, kNoTensor, vectors));
  if (!builder.training()) {
    vectors.scaled = true;
    return builder.append_loss(
        OpKind::kCountRows, unit_rows(builder, x, logit_scale, vectors), targets, {});
  }
  vectors.by_text = true;
  const TensorId mine = unit_rows(builder, x, kNoTensor, vectors);
  const int64_t lanes = builder.options().lanes, rows = texts * batch;
  const TensorId all =
      gather(builder, "vectors.lanes", mine, {lanes * rows, builder.shape(x).columns()});
  const TensorId products = ops::batched_matmul(
      builder, "similarities", mine, all, /*transpose_a=*/false, /*transpose_b=*/true, 1);
  const ContrastiveAttributes attributes = {
      .texts = texts, .batch = batch, .scale = scale, .symmetric = config.symmetric};
  const int64_t directions = config.symmetric ? 2 : 1;
  const TensorId sums = builder.statistics_tensor("similarities.sums", {directions, 2, batch});
  builder[sums].detached = true;
  builder.append(
      {OpKind::kContrastiveSums, "similarities", {products, logit_scale}, {sums}, attributes});
  std::vector<TensorId> parameters = {
      gather(builder, "similarities.lanes", sums, {lanes, directions, 2, batch})};
  if (logit_scale != kNoTensor) parameters.push_back(logit_scale);
  builder.append_loss(OpKind::kContrastive, products, targets, attributes, parameters);
}

int64_t ops::vectors_of_sample(const Graph& evaluation) {
  const auto made = std::ranges::find(evaluation.ops, OpKind::kUnitRows, &Op::kind);
  return made == evaluation.ops.end() ? 1 : made->as<UnitRowsAttributes>().texts;
}

namespace {

OpInputs unit_rows_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  return first_input_gradient(
      builder,
      op,
      OpKind::kUnitRowsBackward,
      {op.inputs[UnitRowsIn::kX], d_outputs[UnitRowsOut::kY], op.outputs[UnitRowsOut::kInverse]});
}

}  // namespace

const OpSchema kUnitRowsSchema = {unit_rows_gradient, elementwise_flops<3>, {}};
const OpSchema kUnitRowsBackwardSchema = {nullptr, elementwise_flops<5>, {}};
const OpSchema kContrastiveSumsSchema = {nullptr, elementwise_flops<6>, {}};
const OpSchema kContrastiveSchema = {
    nullptr, elementwise_flops<12>, {{ContrastiveOut::kDProducts, ContrastiveIn::kProducts}}};
const OpSchema kCountRowsSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep::graph

#include "runtime/graph/ops/lora.h"

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

constexpr const char* kWeight = ".weight";

TensorId lora_add(GraphBuilder& builder,
                  const std::string& name,
                  TensorId y,
                  TensorId h,
                  TensorId b,
                  LoraAttributes attributes) {
  const Shape y_shape = builder.shape(y);
  const int64_t rank = builder.shape(b)[1];
  int64_t rows = 0, end = 0;
  for (const OutputRows& part : attributes.parts) {
    LOCKSTEP_CHECK(part.first >= end && part.first + part.rows <= y_shape.columns(), "{} ", name);
    end = part.first + part.rows;
    rows += part.rows;
  }
  LOCKSTEP_CHECK(
      builder.shape(b)[0] == rows && builder.shape(h).rows() == y_shape.rows() &&
          builder.shape(h).columns() == rank * static_cast<int64_t>(attributes.parts.size()),
      "{}: h {} B {} ",
      name,
      to_string(builder.shape(h)),
      to_string(builder.shape(b)));
  const TensorId out = builder.activation_tensor(name, y_shape);
  builder.append({OpKind::kLoraAdd, name, {y, h, b}, {out}, std::move(attributes)});
  return out;
}

}  // namespace

bool is_lora(const std::string& parameter) {
  return parameter.ends_with(kLoraA) || parameter.ends_with(kLoraB);
}

std::vector<OutputRows> lora_parts(const GraphBuilder& builder, TensorId weight) {
  const LoraLayers& lora = builder.options().lora;
  if (!lora.parts || builder.in_reference() || is_lora(builder.graph()[weight].name)) return {};
  return lora.parts(builder.graph()[weight].name, builder.shape(weight)[0]);
}

TensorId ops::lora(GraphBuilder& builder,
                   const std::string& name,
                   TensorId x,
                   TensorId weight,
                   TensorId y,
                   const std::vector<OutputRows>& parts) {
  const LoraLayers& lora = builder.options().lora;
  const int64_t inputs = builder.shape(weight)[1];
  std::string layer = builder.graph()[weight].name;
  if (layer.ends_with(kWeight)) layer.resize(layer.size() - std::string(kWeight).size());
  int64_t rows = 0;
  for (const OutputRows& part : parts) rows += part.rows;
  // Initialised as in PEFT: kaiming_uniform_(a = sqrt(5)), and zeros.
  const TensorId a = builder.parameter(
      layer + kLoraA,
      {static_cast<int64_t>(parts.size()) * lora.rank, inputs},
      {Initializer::Kind::kUniform, static_cast<float>(1 / std::sqrt(static_cast<double>(inputs)))},
      true);
  const TensorId b =
      builder.parameter(layer + kLoraB, {rows, lora.rank}, {Initializer::Kind::kConstant, 0}, true);
  if (parts.size() > 1) {
    std::vector<int64_t> outputs;
    for (const OutputRows& part : parts) outputs.push_back(part.rows);
    builder.set_row_parts(a, std::vector<int64_t>(parts.size(), lora.rank));
    builder.set_row_parts(b, std::move(outputs));
  }
  const TensorId dropped = ops::dropout(builder, name + ".lora_dropout", x, lora.dropout);
  const TensorId h = ops::linear(builder, name + kLoraA, dropped, a, kNoTensor, Activation::kNone);
  return lora_add(builder,
                  name + ".lora",
                  y,
                  h,
                  b,
                  {.scale = lora.alpha / static_cast<float>(lora.rank), .parts = parts});
}

namespace {

OpInputs lora_add_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId y = op.inputs[LoraAddIn::kY], h = op.inputs[LoraAddIn::kH],
                 b = op.inputs[LoraAddIn::kB];
  const TensorId d_h = builder.needs_gradient(h) ? builder.new_gradient(h) : kNoTensor;
  const auto [d_b, accumulate] = builder.parameter_gradient(b);
  if (d_h != kNoTensor || d_b != kNoTensor)
    builder.append({OpKind::kLoraAddBackward,
                    op.name,
                    {d_outputs[LoraAddOut::kOut], h, b},
                    {d_h, d_b},
                    LoraBackwardAttributes{op.as<LoraAttributes>(), accumulate}});
  return {builder.needs_gradient(y) ? d_outputs[LoraAddOut::kOut] : kNoTensor, d_h, kNoTensor};
}

int64_t lora_add_flops(const Graph& graph, const Op& op) {
  return product_flops(graph, op.inputs[LoraAddIn::kH], op.inputs[LoraAddIn::kB]) +
         graph.shape(op.inputs[LoraAddIn::kH]).elements();
}

int64_t lora_add_backward_flops(const Graph& graph, const Op& op) {
  const int products = (op.outputs[LoraAddBackwardOut::kDH] == kNoTensor ? 0 : 1) +
                       (op.outputs[LoraAddBackwardOut::kDB] == kNoTensor ? 0 : 1);
  return products * product_flops(graph, op.inputs[LoraAddIn::kH], op.inputs[LoraAddIn::kB]);
}

}  // namespace

const OpSchema kLoraAddSchema = {
    lora_add_gradient, lora_add_flops, {{LoraAddOut::kOut, LoraAddIn::kY}}};
const OpSchema kLoraAddBackwardSchema = {nullptr, lora_add_backward_flops, {}};

}  // namespace lockstep::graph

#include "models/transformer.h"

#include "runtime/config/limits.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::models {

void check_heads(const std::string& section, int64_t heads, int64_t width) {
  if (width % heads != 0)
    config::refuse_value(fmt::format("model.{}.heads", section),
                         heads,
                         fmt::format("a divisor of model.{}.width, which is {}", section, width));
}

double attention_flops(int64_t tokens, int64_t width, int64_t layers) {
  const auto length = static_cast<double>(tokens);
  return 12 * length * length * static_cast<double>(width) * static_cast<double>(layers);
}

TensorId TransformerLayers::linear(const std::string& name, TensorId x, const Linear& layer) {
  const TensorId weight =
      matrix(name + ".weight", layer.outputs, builder_.shape(x).columns(), layer.initial);
  const TensorId bias = layer.bias ? constant(name + ".bias", layer.outputs, 0) : kNoTensor;
  for (const TensorId parameter : {weight, bias})
    if (!layer.row_parts.empty() && parameter != kNoTensor)
      builder_.set_row_parts(parameter, layer.row_parts);
  return ops::linear(builder_, name, x, weight, bias, layer.activation);
}

std::pair<TensorId, TensorId> TransformerLayers::layer_norm(
    const std::string& name, TensorId x, TensorId delta, float epsilon, bool bias) {
  const int64_t width = builder_.shape(x).columns();
  const TensorId gamma = constant(name + ".weight", width, 1);
  const TensorId beta = bias ? constant(name + ".bias", width, 0) : kNoTensor;
  return ops::layer_norm(builder_, name, x, delta, gamma, beta, epsilon);
}

TensorId TransformerLayers::matrix(const std::string& name,
                                   int64_t rows,
                                   int64_t columns,
                                   const graph::Initializer& initial) {
  return builder_.parameter(name, {rows, columns}, initial, true);
}

TensorId TransformerLayers::constant(const std::string& name, int64_t width, float value) {
  return builder_.parameter(name, {width}, {graph::Initializer::Kind::kConstant, value}, false);
}

}  // namespace lockstep::models

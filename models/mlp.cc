// Multilayer perceptron: linear, activation, dropout, ..., linear. Weights are drawn from U(-b, b)
// with b = 1/sqrt(inputs), and so are biases (the usual default of a linear layer elsewhere, which
// makes results comparable).
#include <cmath>

#include "models/builders.h"

namespace lockstep {

Graph build_mlp(const MlpConfig& config,
                const ModelIo& io,
                int64_t lane_batch,
                const GraphOptions& options) {
  const Purpose purpose = options.purpose;
  GraphBuilder builder(options);
  TensorId x = builder.input("features", {lane_batch, io.features}, DType::kF32);
  const bool labels = config.loss == Loss::kSoftmaxCrossEntropy;
  TensorId target = kNoTensor;
  if (purpose != Purpose::kInference)
    target = labels ? builder.input("labels", {lane_batch}, DType::kI32)
                    : builder.input("targets", {lane_batch, config.outputs}, DType::kF32);

  x = builder.cast("features.rounded", x);
  int64_t width = io.features;
  const auto layer = [&](const std::string& name, int64_t outputs, Activation activation) {
    const Initializer uniform = {Initializer::Kind::kUniform,
                                 1.0f / std::sqrt(static_cast<float>(width))};
    const TensorId weight = builder.parameter(name + ".weight", {outputs, width}, uniform, true);
    const TensorId bias = builder.parameter(name + ".bias", {outputs}, uniform, false);
    width = outputs;
    x = builder.linear(name, x, weight, bias, activation);
  };
  for (size_t i = 0; i < config.hidden.size(); ++i) {
    const std::string number = std::to_string(i);
    layer("layers." + number, config.hidden[i], config.activation);
    x = builder.dropout("dropout." + number, x, config.dropout);
  }
  layer("layers." + std::to_string(config.hidden.size()), config.outputs, Activation::kNone);

  if (purpose == Purpose::kInference) {
    builder.keep(x);
  } else if (labels) {
    builder.softmax_cross_entropy(
        x, target, purpose == Purpose::kTraining ? config.label_smoothing : 0);
  } else if (config.loss == Loss::kBinaryCrossEntropy) {
    builder.binary_cross_entropy(x, target);
  } else {
    builder.mean_squared_error(x, target);
  }
  return std::move(builder).finish();
}

}  // namespace lockstep

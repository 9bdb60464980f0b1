// Multilayer perceptron: linear, activation, dropout, ..., linear. Weights and biases are drawn
// from U(-b, b) with b = 1/sqrt(inputs), PyTorch's default for linear layers.
#include <cmath>

#include "models/losses.h"
#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::models {

namespace {

class Mlp final : public Model {
 public:
  explicit Mlp(const MlpConfig& config) : config_(config) {}

  void check() const override {
    const bool of_networks = config_.loss == Loss::kCtc || config_.loss == Loss::kContrastive ||
                             config_.loss == Loss::kOutput;
    if (of_networks)
      config::refuse_value("model.mlp.loss",
                           lockstep::name_of(config_.loss),
                           "SOFTMAX_CROSS_ENTROPY, BINARY_CROSS_ENTROPY, MEAN_SQUARED_ERROR, "
                           "MEAN_ABSOLUTE_ERROR, HUBER or SOFT_CROSS_ENTROPY");
    if (config_.label_smoothing > 0 && !smooths_labels(config_.loss)) {
      config::refuse_value("model.mlp.label_smoothing",
                           config_.label_smoothing,
                           "0; above 0 only with model.mlp.loss SOFTMAX_CROSS_ENTROPY or "
                           "SOFT_CROSS_ENTROPY");
    }
    if (config_.dropout > 0 && config_.hidden.empty()) {
      config::refuse_value("model.mlp.dropout",
                           config_.dropout,
                           "0; above 0 only with model.mlp.hidden layers, whose outputs it drops");
    }
  }

  config::ModelTraits traits() const override {
    return {.input = config::ModelInput::kFeatures,
            .loss = config_.loss,
            .huber_delta = config_.huber_delta,
            .outputs = config_.outputs};
  }

  ModelConfig resolve(const ModelIo& io) const override {
    MlpConfig mlp = config_;
    const bool binary = mlp.loss == Loss::kBinaryCrossEntropy;
    const int64_t from_data =
        has_labels() ? io.classes : (io.target_columns > 0 ? io.target_columns : (binary ? 1 : 0));
    if (mlp.outputs == 0) mlp.outputs = from_data;
    if (has_labels() ? mlp.outputs < from_data : mlp.outputs != from_data)
      throw ConfigError("model.mlp.outputs: value is {}; the data has {} {}",
                        mlp.outputs,
                        from_data,
                        has_labels() ? "classes" : "target columns");
    return mlp;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    const std::string last = "layers." + std::to_string(config_.hidden.size()) + ".weight";
    ModelIo io;
    io.features = extent(extents_of, "layers.0.weight", 1, 1);
    (has_labels() ? io.classes : io.target_columns) = extent(extents_of, last, 0, 1);
    return io;
  }

  graph::Graph build(const ModelIo& io,
                     int64_t lane_batch,
                     int64_t /*tokens*/,
                     const graph::GraphOptions& options) const override {
    const graph::Purpose purpose = options.purpose;
    graph::GraphBuilder builder(options);
    TensorId x = builder.input("features", {lane_batch, io.features}, DType::kF32);
    const bool labels = has_labels();
    TensorId target = kNoTensor;
    if (purpose != graph::Purpose::kInference)
      target = labels ? builder.input("labels", {lane_batch}, DType::kI32)
                      : builder.input("targets", {lane_batch, config_.outputs}, DType::kF32);

    x = ops::cast(builder, "features.rounded", x);
    int64_t width = io.features;
    const auto layer = [&](const std::string& name, int64_t outputs, Activation activation) {
      const graph::Initializer uniform = {graph::Initializer::Kind::kUniform,
                                          1.0f / std::sqrt(static_cast<float>(width))};
      const TensorId weight = builder.parameter(name + ".weight", {outputs, width}, uniform, true);
      const TensorId bias = builder.parameter(name + ".bias", {outputs}, uniform, false);
      width = outputs;
      x = ops::linear(builder, name, x, weight, bias, activation);
    };
    for (size_t i = 0; i < config_.hidden.size(); ++i) {
      const std::string number = std::to_string(i);
      layer("layers." + number, config_.hidden[i], config_.activation);
      x = ops::dropout(builder, "dropout." + number, x, config_.dropout);
    }
    layer("layers." + std::to_string(config_.hidden.size()), config_.outputs, Activation::kNone);

    if (purpose == graph::Purpose::kInference)
      builder.keep(x);
    else
      append_loss(builder, {config_.loss, config_.label_smoothing, config_.huber_delta}, x, target);
    return std::move(builder).finish();
  }

  // Biases count too, as one more input of each layer.
  double flops_per_sample(const ModelIo& io) const override {
    double multiplying = 0;
    int64_t width = io.features;
    for (int64_t hidden : config_.hidden) {
      multiplying += static_cast<double>(width + 1) * static_cast<double>(hidden);
      width = hidden;
    }
    return 6 *
           (multiplying + static_cast<double>(width + 1) * static_cast<double>(config_.outputs));
  }

 private:
  bool has_labels() const { return config_.loss == Loss::kSoftmaxCrossEntropy; }

  MlpConfig config_;
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const MlpConfig& config) {
  return std::make_unique<Mlp>(config);
}

}  // namespace lockstep::models

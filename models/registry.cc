#include "models/registry.h"

#include "models/builders.h"
#include "runtime/base/error.h"
#include "runtime/graph/autodiff.h"

namespace lockstep {
namespace {

MlpConfig resolve(MlpConfig mlp, const ModelIo& io) {
  const bool binary = mlp.loss == Loss::kBinaryCrossEntropy,
             labels = mlp.loss == Loss::kSoftmaxCrossEntropy;
  const int64_t from_data =
      labels ? io.classes : (io.target_columns > 0 ? io.target_columns : (binary ? 1 : 0));
  if (mlp.outputs == 0) mlp.outputs = from_data;
  if (labels ? mlp.outputs < from_data : mlp.outputs != from_data)
    throw ConfigError("model.mlp.outputs: value is {}; the data has {} {}",
                      mlp.outputs,
                      from_data,
                      labels ? "classes" : "target columns");
  return mlp;
}

GptConfig resolve(GptConfig gpt, const ModelIo& io) {
  if (gpt.vocabulary == 0) gpt.vocabulary = io.classes;
  if (gpt.vocabulary < io.classes)
    throw ConfigError("model.gpt.vocabulary: value is {}; the data has token ids up to {}",
                      gpt.vocabulary,
                      io.classes - 1);
  return gpt;
}

double flops_per_sample(const MlpConfig& mlp, const ModelIo& io) {
  double multiplying = 0;
  int64_t width = io.features;
  for (int64_t hidden : mlp.hidden) {
    multiplying += static_cast<double>(width + 1) * static_cast<double>(hidden);
    width = hidden;
  }
  return 6 * (multiplying + static_cast<double>(width + 1) * static_cast<double>(mlp.outputs));
}

double flops_per_sample(const GptConfig& gpt, const ModelIo&) {
  const double width = static_cast<double>(gpt.width), layers = static_cast<double>(gpt.layers);
  const double context = static_cast<double>(gpt.context),
               vocabulary = static_cast<double>(gpt.vocabulary);
  // Blocks, norms, head or shared embedding; positions and a separate input embedding multiply
  // nothing.
  const double parameters =
      layers * (12 * width * width + 13 * width) + 2 * width + vocabulary * width;
  return context * (6 * parameters + 6 * layers * width * context);
}

}  // namespace

ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io) {
  return std::visit([&](const auto& config) -> ModelConfig { return resolve(config, io); }, model);
}

Graph build_model(const ModelConfig& model,
                  const ModelIo& io,
                  int64_t lane_batch,
                  const GraphOptions& options,
                  int64_t tokens) {
  const auto* gpt = std::get_if<GptConfig>(&model);
  Graph graph = gpt != nullptr
                    ? build_gpt(*gpt, lane_batch, tokens > 0 ? tokens : gpt->context, options)
                    : build_mlp(std::get<MlpConfig>(model), io, lane_batch, options);
  if (options.purpose == Purpose::kTraining) differentiate(graph);
  return graph;
}

double model_flops_per_sample(const ModelConfig& model, const ModelIo& io) {
  return std::visit([&](const auto& config) { return flops_per_sample(config, io); }, model);
}

}  // namespace lockstep

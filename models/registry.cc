#include "models/registry.h"

#include <type_traits>

#include "models/builders.h"
#include "runtime/base/error.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/schema.h"

namespace lockstep {
namespace {

const char* section_of(const MlpConfig&) { return "mlp"; }
const char* section_of(const GptConfig&) { return "gpt"; }
const char* section_of(const ResnetConfig&) { return "resnet"; }
const char* section_of(const VggConfig&) { return "vgg"; }
const char* section_of(const AlexnetConfig&) { return "alexnet"; }
const char* section_of(const LenetConfig&) { return "lenet"; }

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

// Of networks that take images.
template <typename Config>
Config resolve(Config config, const ModelIo& io) {
  if (config.classes == 0) config.classes = io.classes;
  if (config.classes < io.classes)
    throw ConfigError("model.{}.classes: value is {}; the data has {} classes",
                      section_of(config),
                      config.classes,
                      io.classes);
  check_images(config, io);
  return config;
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

Graph build(const MlpConfig& config,
            const ModelIo& io,
            int64_t batch,
            const GraphOptions& options) {
  return build_mlp(config, io, batch, options);
}
Graph build(const ResnetConfig& config,
            const ModelIo& io,
            int64_t batch,
            const GraphOptions& options) {
  return build_resnet(config, io, batch, options);
}
Graph build(const VggConfig& config,
            const ModelIo& io,
            int64_t batch,
            const GraphOptions& options) {
  return build_vgg(config, io, batch, options);
}
Graph build(const AlexnetConfig& config,
            const ModelIo& io,
            int64_t batch,
            const GraphOptions& options) {
  return build_alexnet(config, io, batch, options);
}
Graph build(const LenetConfig& config,
            const ModelIo& io,
            int64_t batch,
            const GraphOptions& options) {
  return build_lenet(config, io, batch, options);
}

// What multiplies in the forward pass, three times: the gradients of weights and of inputs take as
// much again.
template <typename Config>
double flops_per_sample(const Config& config, const ModelIo& io) {
  const Graph graph = build(config, io, 1, Purpose::kInference);
  int64_t flops = 0;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kConv2d || op.kind == OpKind::kLinear)
      flops += schema_of(op.kind).flops(graph, op);
  }
  return 3 * static_cast<double>(flops);
}

}  // namespace

const char* model_section(const ModelConfig& model) {
  return std::visit([](const auto& config) { return section_of(config); }, model);
}

ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io) {
  return std::visit([&](const auto& config) -> ModelConfig { return resolve(config, io); }, model);
}

Graph build_model(const ModelConfig& model,
                  const ModelIo& io,
                  int64_t lane_batch,
                  const GraphOptions& options,
                  int64_t tokens) {
  Graph graph = std::visit(
      [&](const auto& config) {
        if constexpr (std::is_same_v<std::decay_t<decltype(config)>, GptConfig>) {
          return build_gpt(config, lane_batch, tokens > 0 ? tokens : config.context, options);
        } else {
          return build(config, io, lane_batch, options);
        }
      },
      model);
  if (options.purpose == Purpose::kTraining) differentiate(graph);
  return graph;
}

double model_flops_per_sample(const ModelConfig& model, const ModelIo& io) {
  return std::visit([&](const auto& config) { return flops_per_sample(config, io); }, model);
}

}  // namespace lockstep

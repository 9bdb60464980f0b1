#include "launcher/models/onnx_training.h"

#include <algorithm>
#include <array>

#include "models/onnx/bind/fixed_batch.h"
#include "models/onnx/network.h"
#include "models/registry.h"
#include "runtime/base/error.h"
#include "runtime/graph/schema.h"

namespace lockstep::launcher {
namespace {

bool is_generic(graph::OpKind kind) {
  static constexpr std::array kGeneric = {graph::OpKind::kPointwise,
                                          graph::OpKind::kReduce,
                                          graph::OpKind::kSoftmax,
                                          graph::OpKind::kBatchedMatmul,
                                          graph::OpKind::kGather,
                                          graph::OpKind::kGatherElements,
                                          graph::OpKind::kConcat,
                                          graph::OpKind::kRearrange};
  return std::ranges::find(kGeneric, kind) != kGeneric.end();
}

std::string sample_of(const config::ModelTraits& traits, const models::ModelIo& io) {
  switch (traits.input) {
    case config::ModelInput::kImages:
      return fmt::format("images of {} x {} x {}", io.channels, io.height, io.width);
    case config::ModelInput::kTokens: return fmt::format("{} tokens", traits.context);
    case config::ModelInput::kFeatures: break;
  }
  return fmt::format("{} features", io.features);
}

void count_tensors(const graph::Graph& graph, OnnxTraining& found) {
  for (const graph::Tensor& tensor : graph.tensors) {
    if (tensor.role != graph::Role::kParameter) continue;
    const bool statistic = tensor.running_momentum > 0;
    (statistic ? found.statistics : found.parameters) += tensor.shape.elements();
  }
}

void find_conditions(const models::OpenedModel& model,
                     const models::ModelIo& io,
                     OnnxTraining& found) {
  const std::string& path = std::get<OnnxConfig>(model.config()).file;
  const onnx::File file = onnx::read_file(path);
  found.only_batch = model.only_batch(io);
  if (found.only_batch > 0)
    found.conditions.push_back(onnx::condition_of_batch(file, found.only_batch));
  constexpr int64_t kUsualBatch = 32;
  const std::string node = model.mixing_node(io, kUsualBatch, model.fewest_samples());
  if (!node.empty())
    found.conditions.push_back(fmt::format(
        "train.lanes must be 1, which limits the run to one rank, because samples of a batch mix "
        "at {}",
        node));
}

}  // namespace

OnnxTraining training_of_onnx(const OnnxConfig& config) {
  OnnxTraining found;
  try {
    const std::shared_ptr<const models::OpenedModel> model = models::open_model(config);
    model->check();
    const models::ModelIo io =
        model->io_of_weights([](const std::string&) { return std::nullopt; });
    found.sample = sample_of(model->traits(), io);
    const int64_t samples = model->fewest_samples();
    const graph::Graph graph = model->build(io, samples, graph::Purpose::kInference);
    const graph::Graph with_losses = model->build(io, samples, graph::Purpose::kEvaluation);
    model->build(io, samples, graph::Purpose::kTraining);  // throws if nothing learns
    count_tensors(with_losses, found);
    found.roles = onnx::roles_of(config, with_losses);
    for (const graph::Op& op : graph.ops) {
      if (op.kind == graph::OpKind::kReshape) continue;  // changes only the extents
      found.flops += graph::schema_of(op.kind).flops(graph, op) / samples;
      ++(is_generic(op.kind) ? found.generic : found.ops)[graph::name_of(op.kind)];
    }
    find_conditions(*model, io, found);
  } catch (const ConfigError& error) {
    found = {.refusals = models::problems_of_model(config)};
    if (found.refusals.empty()) found.refusals.emplace_back(error.what());
  }
  return found;
}

}  // namespace lockstep::launcher

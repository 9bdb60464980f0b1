#include "launcher/commands/onnx_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/onnx/network.h"
#include "models/registry.h"
#include "runtime/base/error.h"
#include "runtime/graph/schema.h"

namespace lockstep {
namespace {

bool is_generic(OpKind kind) {
  static constexpr std::array kGeneric = {OpKind::kPointwise,
                                          OpKind::kReduce,
                                          OpKind::kSoftmax,
                                          OpKind::kBatchedMatmul,
                                          OpKind::kGather,
                                          OpKind::kGatherElements,
                                          OpKind::kConcat,
                                          OpKind::kRearrange};
  return std::ranges::find(kGeneric, kind) != kGeneric.end();
}

std::string sample_of(const ModelTraits& traits, const ModelIo& io) {
  switch (traits.input) {
    case ModelInput::kImages:
      return fmt::format("images of {} x {} x {}", io.channels, io.height, io.width);
    case ModelInput::kTokens: return fmt::format("{} tokens", traits.context);
    case ModelInput::kFeatures: break;
  }
  return fmt::format("{} features", io.features);
}

void count_tensors(const Graph& graph, OnnxTraining& found) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != Role::kParameter) continue;
    const bool statistic = tensor.running_momentum > 0;
    (statistic ? found.statistics : found.parameters) += tensor.shape.elements();
  }
}

void find_conditions(const ModelConfig& model, const ModelIo& io, OnnxTraining& found) {
  const std::string& path = std::get<OnnxConfig>(model).file;
  const onnx::File file = onnx::read_file(path);
  const auto fixed = std::ranges::find_if(file.inputs, [&](int input) {
    const onnx::FileValue& value = file.values[static_cast<size_t>(input)];
    return !value.extents.empty() && value.extents[0].extent >= 0;
  });
  if (fixed != file.inputs.end()) {
    const int64_t batch = file.values[static_cast<size_t>(*fixed)].extents[0].extent;
    found.conditions.push_back(fmt::format(
        "train.lanes must be train.global_batch / {}, as the file has a batch of {}; export it with "
        "the batch left open for other lanes",
        batch,
        batch));
  }
  constexpr int64_t kUsualBatch = 32;
  const std::string node = mixing_node(model, io, kUsualBatch, fewest_samples(model));
  if (!node.empty())
    found.conditions.push_back(fmt::format(
        "train.lanes must be 1, for one rank alone, as samples of a batch mix at {}", node));
}

}  // namespace

OnnxTraining training_of_onnx(const OnnxConfig& config) {
  OnnxTraining found;
  RunConfig run;
  run.model = config;
  try {
    check_model(run);
    const ModelIo io = io_of_weights(run.model, [](const std::string&) { return std::nullopt; });
    found.sample = sample_of(traits_of(run.model), io);
    const int64_t samples = fewest_samples(run.model);
    const Graph graph = build_model(run.model, io, samples, GraphOptions(Purpose::kInference));
    const Graph with_losses =
        build_model(run.model, io, samples, GraphOptions(Purpose::kEvaluation));
    build_model(
        run.model, io, samples, GraphOptions(Purpose::kTraining));  // throws if nothing learns
    count_tensors(with_losses, found);
    found.roles = onnx::roles_of(config, with_losses);
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::kReshape) continue;  // other extents of the same elements
      found.flops += schema_of(op.kind).flops(graph, op) / samples;
      ++(is_generic(op.kind) ? found.generic : found.ops)[name_of(op.kind)];
    }
    find_conditions(run.model, io, found);
  } catch (const ConfigError& error) {
    found = {.refusals = problems_of_model(run.model)};
    if (found.refusals.empty()) found.refusals.emplace_back(error.what());
  }
  return found;
}

}  // namespace lockstep

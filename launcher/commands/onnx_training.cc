#include "launcher/commands/onnx_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

}  // namespace

OnnxTraining training_of_onnx(const OnnxConfig& config) {
  OnnxTraining found;
  RunConfig run;
  run.model = config;
  try {
    check_model(run);
    const ModelIo io = io_of_weights(run.model, [](const std::string&) { return std::nullopt; });
    found.sample = sample_of(traits_of(run.model), io);
    const Graph graph = build_model(run.model, io, 1, GraphOptions(Purpose::kInference));
    const Graph with_losses = build_model(run.model, io, 1, GraphOptions(Purpose::kEvaluation));
    count_tensors(with_losses, found);
    found.roles = onnx::roles_of(config, with_losses);
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::kReshape) continue;  // other extents of the same elements
      found.flops += schema_of(op.kind).flops(graph, op);
      ++(is_generic(op.kind) ? found.generic : found.ops)[name_of(op.kind)];
    }
  } catch (const ConfigError& error) {
    found = {.refusal = error.what()};
  }
  return found;
}

}  // namespace lockstep

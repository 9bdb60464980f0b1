#include "runtime/graph/parameter_groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/pattern.h"

namespace lockstep {

namespace {

// What a group says of a parameter's first elements. The inputs of an output are what a row has.
Initializer initializer_of(GroupConfig::Initialize how, const Tensor& parameter) {
  using Initialize = GroupConfig::Initialize;
  using Kind = Initializer::Kind;
  if (how == Initialize::kZeros) return {.kind = Kind::kConstant, .value = 0, .anew = true};
  if (how == Initialize::kOnes) return {.kind = Kind::kConstant, .value = 1, .anew = true};
  if (how == Initialize::kKeep || parameter.shape.rank() < 2) return parameter.initializer;
  const int64_t rows = parameter.shape[0], inputs = parameter.shape.elements() / rows;
  // (O, H, W, C): each input goes to outputs at H x W places.
  const Shape& kernel =
      parameter.channels_last.rank() == 4 ? parameter.channels_last : parameter.shape;
  const int64_t outputs = kernel.rank() == 4 ? kernel[0] * kernel[1] * kernel[2] : rows;
  const auto root = [](double x) { return static_cast<float>(std::sqrt(x)); };
  if (how == Initialize::kKaiming)
    return {.kind = Kind::kNormal, .value = root(2.0 / static_cast<double>(inputs)), .anew = true};
  if (how == Initialize::kXavier)
    return {.kind = Kind::kUniform,
            .value = root(6.0 / static_cast<double>(inputs + outputs)),
            .anew = true};
  return {.kind = Kind::kNormal, .value = 0.02f, .anew = true};
}

}  // namespace

void set_parameter_groups(const TrainConfig& train, const std::string& section, Graph& graph) {
  if (train.layer_lr_decay < 1 && graph.blocks == 0)
    refuse_value("train.layer_lr_decay",
                 train.layer_lr_decay,
                 fmt::format("1 for model.{}, which does not consist of blocks", section));
  std::vector<bool> grouped(graph.tensors.size(), false);
  for (size_t i = 0; i < train.groups.size(); ++i) {
    const GroupConfig& group = train.groups[i];
    const std::string path = fmt::format("train.groups[{}].match", i);
    const Pattern pattern(path, group.match);
    bool any = false;
    for (const TensorId id : graph.parameters) {
      Tensor& parameter = graph[id];
      if (parameter.running_momentum > 0 || !pattern.found_in(parameter.name)) continue;
      any = true;
      if (grouped[static_cast<size_t>(id)]) continue;
      grouped[static_cast<size_t>(id)] = true;
      parameter.frozen = parameter.frozen || group.freeze;
      parameter.lr_scale = group.lr_scale;
      if (group.weight_decay >= 0) parameter.weight_decay = group.weight_decay;
      parameter.initializer = initializer_of(group.initialize, parameter);
    }
    if (!any)
      refuse_value(path,
                   in_quotes(group.match),
                   fmt::format("what is found in the name of a parameter of model.{}, such as {}",
                               section,
                               in_quotes(graph[graph.parameters.front()].name)));
  }
  check_some_train(graph, "train.groups");
  if (train.layer_lr_decay == 1) return;
  const double decay = train.layer_lr_decay;
  for (const TensorId id : graph.parameters)
    graph[id].lr_scale = static_cast<float>(graph[id].lr_scale *
                                            std::pow(decay, graph.blocks + 1 - graph[id].level));
}

void check_some_train(const Graph& graph, const std::string& field) {
  const bool any = std::any_of(graph.parameters.begin(), graph.parameters.end(), [&](TensorId id) {
    return graph[id].running_momentum == 0 && !graph[id].frozen;
  });
  if (!any) throw ConfigError("{}: freezes all parameters; allowed: one or more that learn", field);
}

}  // namespace lockstep

#include "runtime/graph/parameter_groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/pattern.h"

namespace lockstep {

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

#include "runtime/graph/parameter_groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/pattern.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::graph {

namespace {

struct Fans {
  int64_t inputs, outputs;  // fan-in and fan-out
};

// Biases of a recurrent layer are stacked by direction.
bool is_recurrent_bias(const Graph& graph, TensorId id) {
  return std::ranges::any_of(graph.ops, [&](const Op& op) {
    return op.kind == OpKind::kRecurrent && op.inputs[RecurrentIn::kBias] == id;
  });
}

// The fans of a parameter; none for a vector. A matrix is (O, I), a kernel (O, H, W, I). A
// parameter with three axes is a stack of as many matrices as its first extent.
std::optional<Fans> fans_of(const Graph& graph, TensorId id) {
  const Tensor& parameter = graph[id];
  // A 3-D kernel stores its depth next to the channels; a layer that reads images is a matrix.
  const bool is_deep = parameter.shape.rank() == 4 && parameter.channels_last.rank() == 5;
  const Shape& shape = is_deep ? parameter.channels_last : parameter.shape;
  if (is_recurrent_bias(graph, id)) return std::nullopt;
  if (shape.rank() == 2) return Fans{shape[1], shape[0]};
  int64_t longest = 1;
  for (int d = 0; d < shape.rank(); ++d) longest = std::max(longest, shape[d]);
  if (shape.rank() < 2 || shape.elements() == longest) return std::nullopt;
  if (shape.rank() == 3) return Fans{shape[2], shape[1]};
  const int64_t inputs = shape.elements() / shape[0], channels = shape[shape.rank() - 1];
  return Fans{inputs, shape[0] * (inputs / channels)};
}

// The initial value of a parameter according to its group.
Initializer initializer_of(GroupConfig::Initialize how, const Graph& graph, TensorId id) {
  using Initialize = GroupConfig::Initialize;
  using Kind = Initializer::Kind;
  if (how == Initialize::kZeros)
    return {.kind = Kind::kConstant, .value = 0, .overrides_weights = true};
  if (how == Initialize::kOnes)
    return {.kind = Kind::kConstant, .value = 1, .overrides_weights = true};
  const std::optional<Fans> fans = fans_of(graph, id);
  if (how == Initialize::kKeep || !fans) return graph[id].initializer;
  const auto root = [](double x, int64_t of) {
    return static_cast<float>(std::sqrt(x / static_cast<double>(of)));
  };
  if (how == Initialize::kKaiming)
    return {.kind = Kind::kNormal, .value = root(2, fans->inputs), .overrides_weights = true};
  if (how == Initialize::kXavier)
    return {.kind = Kind::kUniform,
            .value = root(6, fans->inputs + fans->outputs),
            .overrides_weights = true};
  return {.kind = Kind::kNormal, .value = 0.02f, .overrides_weights = true};
}

}  // namespace

void set_parameter_groups(const TrainConfig& train, const std::string& section, Graph& graph) {
  if (train.layer_lr_decay < 1 && graph.blocks == 0)
    config::refuse_value("train.layer_lr_decay",
                         train.layer_lr_decay,
                         fmt::format("1 for model.{}, which does not consist of blocks", section));
  std::vector<bool> grouped(graph.tensors.size(), false);
  for (size_t i = 0; i < train.groups.size(); ++i) {
    const GroupConfig& group = train.groups[i];
    const std::string path = fmt::format("train.groups[{}].match", i);
    const config::Pattern pattern(path, group.match);
    bool any = false;
    for (const TensorId id : graph.parameters) {
      Tensor& parameter = graph[id];
      if (parameter.running_momentum > 0 || !pattern.found_in(parameter.name)) continue;
      any = true;
      if (grouped[static_cast<size_t>(id)]) continue;
      grouped[static_cast<size_t>(id)] = true;
      // A group does not initialize parameters that the model itself froze, such as a table of
      // positions.
      if (!parameter.frozen) parameter.initializer = initializer_of(group.initialize, graph, id);
      parameter.frozen = parameter.frozen || group.freeze;
      parameter.lr_scale = group.lr_scale;
      if (group.weight_decay >= 0) parameter.weight_decay = group.weight_decay;
    }
    if (!any)
      config::refuse_value(
          path,
          in_quotes(group.match),
          fmt::format("a pattern that matches the name of a parameter of model.{}, "
                      "such as {}",
                      section,
                      in_quotes(graph[graph.parameters.front()].name)));
  }
  require_some_trained(graph, "train.groups");
  if (train.layer_lr_decay == 1) return;
  const double decay = train.layer_lr_decay;
  for (const TensorId id : graph.parameters)
    graph[id].lr_scale = static_cast<float>(graph[id].lr_scale *
                                            std::pow(decay, graph.blocks + 1 - graph[id].level));
}

void require_some_trained(const Graph& graph, const std::string& field) {
  const bool any = std::any_of(graph.parameters.begin(), graph.parameters.end(), [&](TensorId id) {
    return graph[id].running_momentum == 0 && !graph[id].frozen;
  });
  if (!any) throw ConfigError("{}: freezes all parameters; at least one must be trained", field);
}

}  // namespace lockstep::graph

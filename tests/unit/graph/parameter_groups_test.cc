// Catches: a group that takes what an earlier one has, rates that are those of another block, a
// group that does nothing in silence; gradients of frozen parameters, and a backward pass below the
// lowest one that learns.
#include "runtime/graph/parameter_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::graph {
namespace {

// "in.weight", two blocks "block.K.weight", "out.weight".
Graph layers(GraphOptions options = Purpose::kTraining) {
  GraphBuilder builder(options);
  TensorId x = builder.input("x", {4, 6}, DType::kF32);
  const TensorId target = builder.input("target", {4, 6}, DType::kF32);
  const auto linear = [&](const std::string& name) {
    const TensorId weight = builder.parameter(name + ".weight", {6, 6}, {}, true);
    x = ops::linear(builder, name, x, weight, kNoTensor, Activation::kNone);
  };
  linear("in");
  for (const char* name : {"block.0", "block.1"}) {
    builder.begin_block();
    linear(name);
    builder.end_block();
  }
  linear("out");
  ops::mean_squared_error(builder, x, target);
  return std::move(builder).finish();
}

const Tensor& parameter(const Graph& graph, const std::string& name) {
  for (const TensorId id : graph.parameters)
    if (graph[id].name == name) return graph[id];
  throw std::runtime_error(name);
}

std::string refusal(const TrainConfig& train) {
  Graph graph = layers();
  try {
    set_parameter_groups(train, "mlp", graph);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterGroups, TheFirstThatMatchesCounts) {
  TrainConfig train;
  train.groups = {{.match = "block\\.0", .lr_scale = 0.5f},
                  {.match = "block", .lr_scale = 2, .weight_decay = 0.25f, .freeze = true}};
  Graph graph = layers();
  set_parameter_groups(train, "mlp", graph);
  EXPECT_EQ(parameter(graph, "block.0.weight").lr_scale, 0.5f);
  EXPECT_EQ(parameter(graph, "block.0.weight").weight_decay, -1);
  EXPECT_FALSE(parameter(graph, "block.0.weight").frozen);
  EXPECT_EQ(parameter(graph, "block.1.weight").lr_scale, 2);
  EXPECT_EQ(parameter(graph, "block.1.weight").weight_decay, 0.25f);
  EXPECT_TRUE(parameter(graph, "block.1.weight").frozen);
  EXPECT_EQ(parameter(graph, "out.weight").lr_scale, 1);
}

TEST(ParameterGroups, MatricesBeginAnewAsAskedFor) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 6}, DType::kF32);
  const Initializer given = {.kind = Initializer::Kind::kGiven};
  const TensorId weight = builder.parameter("weight", {3, 6}, given, true);
  const TensorId bias = builder.parameter("bias", {3}, given, false);
  const TensorId y = ops::linear(builder, "y", x, weight, bias, Activation::kNone);
  ops::mean_squared_error(builder, y, builder.input("target", {4, 3}, DType::kF32));
  const Graph graph = std::move(builder).finish();
  const auto initializer = [&](GroupConfig::Initialize how, const char* name) {
    TrainConfig train;
    train.groups = {{.match = ".", .initialize = how}};
    Graph changed = graph;
    set_parameter_groups(train, "onnx", changed);
    return parameter(changed, name).initializer;
  };
  using Initialize = GroupConfig::Initialize;
  using Kind = Initializer::Kind;
  EXPECT_EQ(initializer(Initialize::kKeep, "weight").kind, Kind::kGiven);
  EXPECT_FALSE(initializer(Initialize::kKeep, "weight").overrides_weights);
  EXPECT_EQ(initializer(Initialize::kKaiming, "weight").kind, Kind::kNormal);
  EXPECT_NEAR(initializer(Initialize::kKaiming, "weight").value, std::sqrt(2.0 / 6), 1e-6);
  EXPECT_EQ(initializer(Initialize::kXavier, "weight").kind, Kind::kUniform);
  EXPECT_NEAR(initializer(Initialize::kXavier, "weight").value, std::sqrt(6.0 / 9), 1e-6);
  EXPECT_EQ(initializer(Initialize::kNormal, "weight").value, 0.02f);
  for (const Initialize how : {Initialize::kKaiming, Initialize::kXavier, Initialize::kNormal}) {
    EXPECT_TRUE(initializer(how, "weight").overrides_weights);
    EXPECT_EQ(initializer(how, "bias").kind, Kind::kGiven);
  }
  EXPECT_EQ(initializer(Initialize::kOnes, "bias").value, 1);
  EXPECT_EQ(initializer(Initialize::kZeros, "bias").value, 0);
  EXPECT_TRUE(initializer(Initialize::kZeros, "bias").overrides_weights);
}

TEST(ParameterGroups, WhatBeginsAnewIsDrawnAsItLies) {
  GraphBuilder builder(Purpose::kTraining);
  const Initializer given = {.kind = Initializer::Kind::kGiven};
  const auto made = [&](const char* name, const Shape& shape) {
    return builder.parameter(name, shape, given, true);
  };
  const TensorId x = builder.input("x", {5, 2, 4}, DType::kF32);
  const RecurrentAttributes attributes = {.cell = Cell::kLstm, .direction = Direction::kForward};
  ops::recurrent(
      builder,
      "lstm",
      {.x = x, .w = made("w", {1, 32, 4}), .r = made("r", {1, 32, 8}), .bias = made("b", {1, 64})},
      attributes);
  made("scale", {8, 1, 1});
  made("kernel", {6, 3, 3, 2});
  builder.set_channels_last(made("deep", {6, 3, 3, 4}), {6, 3, 3, 2, 2});
  builder.set_channels_last(made("of_images", {6, 36}), {6, 3, 3, 4});
  made("table", {4, 4});
  Graph graph = builder.graph();  // a copy: nothing of it is computed
  graph[graph.parameters.back()].frozen = true;
  TrainConfig train;
  train.groups = {{.match = ".", .initialize = GroupConfig::Initialize::kXavier}};
  set_parameter_groups(train, "onnx", graph);
  const auto spread = [&](const char* name) { return parameter(graph, name).initializer.value; };
  EXPECT_NEAR(spread("w"), std::sqrt(6.0 / (4 + 32)), 1e-6);
  EXPECT_NEAR(spread("r"), std::sqrt(6.0 / (8 + 32)), 1e-6);
  EXPECT_NEAR(spread("kernel"), std::sqrt(6.0 / (18 + 54)), 1e-6);
  EXPECT_NEAR(spread("deep"), std::sqrt(6.0 / (36 + 108)), 1e-6);
  EXPECT_NEAR(spread("of_images"), std::sqrt(6.0 / (36 + 6)), 1e-6);
  for (const char* kept : {"b", "scale", "table"})
    EXPECT_EQ(parameter(graph, kept).initializer.kind, Initializer::Kind::kGiven) << kept;
}

TEST(ParameterGroups, RatesFallFromTheHeadToTheEmbedding) {
  TrainConfig train;
  train.layer_lr_decay = 0.5f;
  train.groups = {{.match = "block.1", .lr_scale = 3}};
  Graph graph = layers();
  set_parameter_groups(train, "mlp", graph);
  EXPECT_EQ(parameter(graph, "out.weight").lr_scale, 1);
  EXPECT_EQ(parameter(graph, "block.1.weight").lr_scale, 3 * 0.5f);
  EXPECT_EQ(parameter(graph, "block.0.weight").lr_scale, 0.25f);
  EXPECT_EQ(parameter(graph, "in.weight").lr_scale, 0.125f);
}

TEST(ParameterGroups, WhatDoesNothingIsRefused) {
  TrainConfig train;
  train.groups = {{.match = "in"}, {.match = "no such layer"}};
  EXPECT_EQ(refusal(train).find("train.groups[1].match: value is 'no such layer'; allowed: "), 0u)
      << refusal(train);
  train.groups = {{.match = "("}};
  EXPECT_EQ(refusal(train).find("train.groups[0].match: value is '('; allowed: a regular"), 0u)
      << refusal(train);
  train.groups = {{.match = ".", .freeze = true}};
  EXPECT_EQ(refusal(train).find("train.groups: freezes all parameters"), 0u) << refusal(train);
}

TEST(ParameterGroups, ModelsWithoutBlocksHaveNoLayerDecay) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 6}, DType::kF32);
  const TensorId weight = builder.parameter("weight", {6, 6}, {}, true);
  ops::mean_squared_error(
      builder, ops::linear(builder, "y", x, weight, kNoTensor, Activation::kNone), x);
  Graph graph = std::move(builder).finish();
  TrainConfig train;
  train.layer_lr_decay = 0.5f;
  EXPECT_THROW(set_parameter_groups(train, "mlp", graph), ConfigError);
}

size_t count(const Graph& graph, OpKind kind) {
  return static_cast<size_t>(std::count_if(
      graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

TEST(Frozen, ParametersHaveNoGradientAndNothingRunsBelowTheLowestThatLearns) {
  Graph graph = layers();
  for (const TensorId id : graph.parameters) graph[id].frozen = graph[id].name != "block.1.weight";
  differentiate(graph);
  for (const TensorId id : graph.parameters)
    EXPECT_EQ(graph[id].gradient != kNoTensor, graph[id].name == "block.1.weight");
  std::vector<std::string> order;
  for (size_t i = graph.forward_ops; i < graph.ops.size(); ++i) order.push_back(graph.ops[i].name);
  EXPECT_EQ(order, (std::vector<std::string>{"out", "block.1"}));
  const Op& out = graph.ops[graph.forward_ops];
  EXPECT_NE(out.outputs[LinearBackwardOut::kDX], kNoTensor);
  EXPECT_EQ(out.outputs[LinearBackwardOut::kDWeight], kNoTensor);  // of the frozen weight
  EXPECT_EQ(out.inputs[LinearBackwardIn::kX],
            kNoTensor);  // so that the forward pass need not keep it
  const Op& block = graph.ops[graph.forward_ops + 1];
  EXPECT_EQ(block.outputs[LinearBackwardOut::kDX], kNoTensor);  // nothing below learns
  EXPECT_NE(block.outputs[LinearBackwardOut::kDWeight], kNoTensor);
}

// As PyTorch's norms in training mode.
TEST(Frozen, RunningStatisticsOfFrozenNormsFollowTheBatch) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 6}, DType::kF32);
  const TensorId gamma = builder.parameter("gamma", {6}, {}, false),
                 beta = builder.parameter("beta", {6}, {}, false),
                 mean = builder.running_statistic("mean", {6}, 0, 0.1f),
                 variance = builder.running_statistic("variance", {6}, 1, 0.1f);
  const TensorId normed = ops::batch_norm(
      builder, "norm", x, kNoTensor, {gamma, beta, mean, variance}, BatchNormAttributes{});
  const TensorId weight = builder.parameter("weight", {6, 6}, {}, true);
  ops::mean_squared_error(
      builder, ops::linear(builder, "y", normed, weight, kNoTensor, Activation::kNone), x);
  Graph graph = std::move(builder).finish();
  graph[gamma].frozen = graph[beta].frozen = true;
  differentiate(graph);
  EXPECT_EQ(count(graph, OpKind::kBatchNormBackward), 0u);
  EXPECT_EQ(count(graph, OpKind::kBatchNormRunning), 1u);
  for (const TensorId id : {mean, variance}) EXPECT_NE(graph[id].gradient, kNoTensor);
  for (const TensorId id : {gamma, beta}) EXPECT_EQ(graph[id].gradient, kNoTensor);
}

TEST(Lora, StandsBesideTheLayersThatTheOptionsName) {
  GraphOptions options(Purpose::kTraining);
  options.lora = {.rank = 2, .alpha = 8, .dropout = 0.5f};
  options.lora.parts = [](const std::string& weight, int64_t rows) {
    EXPECT_EQ(rows, 6);
    return weight == "block.1.weight" ? std::vector<OutputRows>{{0, 1}, {3, 3}}
                                      : std::vector<OutputRows>();
  };
  Graph graph = layers(options);
  const Tensor &a = parameter(graph, "block.1.lora_A"), &b = parameter(graph, "block.1.lora_B");
  EXPECT_EQ(a.shape, Shape({4, 6}));
  EXPECT_EQ(b.shape, Shape({4, 2}));
  EXPECT_EQ(a.initializer.value, static_cast<float>(1 / std::sqrt(6.0)));  // kaiming, a = sqrt(5)
  EXPECT_EQ(b.initializer.value, 0);
  EXPECT_EQ(a.row_parts, (std::vector<int64_t>{2, 2}));  // which an optimizer of matrices goes by
  EXPECT_EQ(b.row_parts, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(a.level, 2);
  for (const TensorId id : graph.parameters) graph[id].frozen = !is_lora(graph[id].name);
  differentiate(graph);
  EXPECT_EQ(count(graph, OpKind::kLoraAdd), 1u);
  EXPECT_EQ(count(graph, OpKind::kLoraAddBackward), 1u);
  EXPECT_EQ(count(graph, OpKind::kDropout), 1u);
  EXPECT_EQ(count(graph, OpKind::kDropoutBackward), 0u);  // nothing below learns
}

}  // namespace
}  // namespace lockstep::graph

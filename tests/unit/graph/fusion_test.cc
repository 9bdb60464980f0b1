// Catches: a convolution fused with its norm although something else needs what lies between them,
// in training or on a device that has no such op; inputs handed to the fused op in another order; a
// fused op that runs before its shortcut is there.
#include "runtime/graph/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"

namespace lockstep::graph {
namespace {

constexpr int64_t kChannels = 6;

bool always(const Graph&, const Op&) { return true; }

int count(const Graph& graph, OpKind kind) {
  return static_cast<int>(std::count_if(
      graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

// Layers of (2, 5, 5, kChannels), each with parameters of its own.
class Layers {
 public:
  explicit Layers(Purpose purpose = Purpose::kInference) : builder_(purpose) {}

  TensorId input() { return builder_.input("x", {2, 5, 5, kChannels}, DType::kF32); }
  TensorId conv(const std::string& name, TensorId x, Activation activation = Activation::kNone) {
    Conv2dAttributes attributes;
    attributes.padding = {1, 1};
    attributes.activation = activation;
    const TensorId weight = parameter(name + ".weight", {kChannels, 3, 3, kChannels});
    return ops::conv2d(
        builder_, name, x, weight, parameter(name + ".bias", {kChannels}), attributes);
  }
  TensorId norm(const std::string& name, TensorId x, TensorId delta = kNoTensor) {
    ops::BatchNormParameters p;
    p.gamma = parameter(name + ".weight", {kChannels});
    p.beta = parameter(name + ".bias", {kChannels});
    p.running_mean = builder_.running_statistic(name + ".mean", {kChannels}, 0, 0.1f);
    p.running_variance = builder_.running_statistic(name + ".variance", {kChannels}, 1, 0.1f);
    BatchNormAttributes attributes;
    attributes.epsilon = 1e-3f;
    attributes.activation = Activation::kRelu;
    return ops::batch_norm(builder_, name, x, delta, p, attributes);
  }
  GraphBuilder& builder() { return builder_; }
  Graph finish(TensorId output) && {
    builder_.keep(output);
    return std::move(builder_).finish();
  }

 private:
  TensorId parameter(const std::string& name, Shape shape) {
    return builder_.parameter(name, shape, {}, true);
  }

  GraphBuilder builder_;
};

// A residual block: the branch's norm adds a shortcut that has a convolution and a norm of its own.
Graph block(Purpose purpose = Purpose::kInference) {
  Layers layers(purpose);
  const TensorId x = layers.input();
  const TensorId branch = layers.conv("branch", x);
  const TensorId shortcut = layers.norm("shortcut.norm", layers.conv("shortcut", x));
  return std::move(layers).finish(layers.norm("branch.norm", branch, shortcut));
}

TensorId id_of(const Graph& graph, const std::string& name) {
  const auto at = std::find_if(
      graph.tensors.begin(), graph.tensors.end(), [&](const Tensor& t) { return t.name == name; });
  EXPECT_NE(at, graph.tensors.end()) << name;
  return static_cast<TensorId>(at - graph.tensors.begin());
}

TEST(FuseBatchNorms, AConvolutionAndItsNormBecomeOneOp) {
  Graph graph = block();
  const std::vector<TensorId> parameters = graph.parameters;
  fuse_batch_norms(graph, always);
  ASSERT_EQ(graph.ops.size(), 2u);
  EXPECT_EQ(graph.forward_ops, 2u);
  EXPECT_EQ(graph.parameters, parameters);
  // The shortcut's comes first: the branch's reads it, although its convolution was built before.
  EXPECT_EQ(graph.ops[0].name, "shortcut");
  const Op& op = graph.ops[1];
  EXPECT_EQ(op.kind, OpKind::kConv2dBatchNorm);
  EXPECT_EQ(op.name, "branch");
  const std::vector<std::string> inputs = {"x",
                                           "branch.weight",
                                           "branch.bias",
                                           "branch.norm.weight",
                                           "branch.norm.bias",
                                           "branch.norm.mean",
                                           "branch.norm.variance",
                                           "shortcut.norm"};
  ASSERT_EQ(op.inputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(graph[op.inputs.at(i)].name, inputs[i]);
  EXPECT_EQ(graph.ops[0].inputs[Conv2dBatchNormIn::kDelta], kNoTensor);
  EXPECT_EQ(op.outputs, std::vector<TensorId>{graph.result});
  const auto& attributes = op.as<Conv2dBatchNormAttributes>();
  EXPECT_EQ(attributes.conv.padding, (Extent2d{1, 1}));
  EXPECT_EQ(attributes.norm.epsilon, 1e-3f);
  EXPECT_EQ(attributes.norm.activation, Activation::kRelu);
}

TEST(FuseBatchNorms, TrainingStaysAsItIs) {
  Graph graph = block(Purpose::kTraining);
  fuse_batch_norms(graph, always);
  EXPECT_EQ(count(graph, OpKind::kConv2d), 2);
  EXPECT_EQ(count(graph, OpKind::kBatchNorm), 2);
}

TEST(FuseBatchNorms, ADeviceThatHasNoSuchOpKeepsBoth) {
  Graph graph = block();
  fuse_batch_norms(graph, [](const Graph&, const Op& op) { return op.name != "branch"; });
  ASSERT_EQ(graph.ops.size(), 3u);
  EXPECT_EQ(graph.ops[0].kind, OpKind::kConv2d);
  EXPECT_EQ(graph.ops[1].kind, OpKind::kConv2dBatchNorm);
  EXPECT_EQ(graph.ops[2].kind, OpKind::kBatchNorm);
}

TEST(FuseBatchNorms, WhatSomethingElseReadsStays) {
  Layers layers;
  const TensorId y = layers.conv("conv", layers.input());
  const TensorId sum = ops::add(layers.builder(), "sum", layers.norm("norm", y), y);
  Graph graph = std::move(layers).finish(sum);
  fuse_batch_norms(graph, always);
  EXPECT_EQ(count(graph, OpKind::kConv2dBatchNorm), 0);
  EXPECT_EQ(graph.ops.size(), 3u);
}

// A norm that adds a convolution's output, instead of normalising it, needs it in memory.
TEST(FuseBatchNorms, AShortcutStays) {
  Layers layers;
  const TensorId x = layers.input();
  const TensorId branch = layers.conv("branch", x), shortcut = layers.conv("shortcut", x);
  Graph graph = std::move(layers).finish(layers.norm("norm", branch, shortcut));
  fuse_batch_norms(graph, always);
  ASSERT_EQ(graph.ops.size(), 2u);
  EXPECT_EQ(graph.ops[0].name, "shortcut");
  EXPECT_EQ(graph.ops[0].kind, OpKind::kConv2d);
  EXPECT_EQ(graph.ops[1].inputs[Conv2dBatchNormIn::kDelta], id_of(graph, "shortcut"));
}

TEST(FuseBatchNorms, AnActivationInBetweenStays) {
  Layers layers;
  const TensorId y = layers.conv("conv", layers.input(), Activation::kRelu);
  Graph graph = std::move(layers).finish(layers.norm("norm", y));
  fuse_batch_norms(graph, always);
  EXPECT_EQ(count(graph, OpKind::kConv2dBatchNorm), 0);
}

TEST(FuseBatchNorms, TheOutputOfTheGraphStays) {
  Layers layers;
  const TensorId y = layers.conv("conv", layers.input());
  layers.norm("norm", y);
  Graph graph = std::move(layers).finish(y);
  fuse_batch_norms(graph, always);
  EXPECT_EQ(count(graph, OpKind::kConv2dBatchNorm), 0);
}

}  // namespace
}  // namespace lockstep::graph

// Catches: a convolution fused with its norm although something else needs what lies between them,
// in training or on a device that has no such op; inputs handed to the fused op in another order; a
// fused op that runs before its shortcut is there; a sum of gradients that disappears although
// something else reads it, or stays although only a norm does; a y that is kept for its signs.
#include "runtime/graph/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/graph/autodiff.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/pooling.h"

namespace lockstep::graph {
namespace {

constexpr int64_t kChannels = 8;

bool always(const Graph&, const Op&) { return true; }

int count(const Graph& graph, OpKind kind) {
  return static_cast<int>(std::count_if(
      graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

// Layers of (2, 5, 5, kChannels), each with parameters of its own.
class Layers {
 public:
  explicit Layers(const GraphOptions& options = Purpose::kInference) : builder_(options) {}

  TensorId input() { return builder_.input("x", {2, 5, 5, kChannels}, DType::kF32); }
  TensorId conv(const std::string& name, TensorId x, Activation activation = Activation::kNone) {
    Conv2dAttributes attributes;
    attributes.padding = {1, 1};
    attributes.activation = activation;
    const TensorId weight = parameter(name + ".weight", {kChannels, 3, 3, kChannels});
    return ops::conv2d(
        builder_, name, x, weight, parameter(name + ".bias", {kChannels}), attributes);
  }
  TensorId norm(const std::string& name,
                TensorId x,
                TensorId delta = kNoTensor,
                Activation activation = Activation::kRelu) {
    ops::BatchNormParameters p;
    p.gamma = parameter(name + ".weight", {kChannels});
    p.beta = parameter(name + ".bias", {kChannels});
    p.running_mean = builder_.running_statistic(name + ".mean", {kChannels}, 0, 0.1f);
    p.running_variance = builder_.running_statistic(name + ".variance", {kChannels}, 1, 0.1f);
    BatchNormAttributes attributes;
    attributes.epsilon = 1e-3f;
    attributes.activation = activation;
    attributes.synchronised = true;  // over the lanes of the builder: by default, one
    return ops::batch_norm(builder_, name, x, delta, p, attributes);
  }
  GraphBuilder& builder() { return builder_; }
  // A training graph of a loss of the output.
  Graph train(TensorId output) && {
    const TensorId target = builder_.input("target", {2, kChannels}, DType::kF32);
    ops::mean_squared_error(builder_, ops::global_avg_pool(builder_, "pool", output), target);
    Graph graph = std::move(builder_).finish();
    differentiate(graph);
    return graph;
  }
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

// Two residual blocks whose shortcuts are their inputs.
Graph residual(Activation activation, const GraphOptions& options = Purpose::kTraining) {
  Layers layers(options);
  TensorId x = layers.norm("stem.norm", layers.conv("stem", layers.input()));
  for (const char* name : {"first", "second"}) {
    const std::string conv = name;
    x = layers.norm(conv + ".norm", layers.conv(conv, x), x, activation);
  }
  return std::move(layers).train(x);
}

const Op& backward_of(const Graph& graph, OpKind kind, const std::string& name) {
  const auto at = std::ranges::find_if(
      graph.ops, [&](const Op& op) { return op.kind == kind && op.name == name; });
  EXPECT_NE(at, graph.ops.end()) << name;
  return *at;
}

std::string name_of(const Graph& graph, TensorId id) {
  return id == kNoTensor ? "none" : graph[id].name;
}

TEST(FuseGradientSums, ANormAddsTheGradientsOfItsReaders) {
  const Graph graph = residual(Activation::kRelu);
  EXPECT_EQ(count(graph, OpKind::kAdd), 0);
  using In = BatchNormBackwardIn;
  // The shortcut's gradient comes first: its norm is the last that reads the block's output.
  const Op& first = backward_of(graph, OpKind::kBatchNormBackward, "first.norm");
  const Op& second = backward_of(graph, OpKind::kBatchNormBackward, "second.norm");
  EXPECT_EQ(first.inputs[In::kDY], second.outputs[BatchNormBackwardOut::kDDelta]);
  EXPECT_EQ(name_of(graph, first.inputs[In::kDY2]), "d_first.norm");
  EXPECT_NE(first.inputs[In::kDY2], first.inputs[In::kDY]);
  EXPECT_EQ(second.inputs[In::kDY2], kNoTensor) << "its output has one reader";
  // Without delta, too.
  EXPECT_NE(backward_of(graph, OpKind::kBatchNormBackward, "stem.norm").inputs[In::kDY2],
            kNoTensor);
}

// Without an activation, d_y itself goes on to the shortcut.
TEST(FuseGradientSums, ASumThatOthersReadIsWritten) {
  const Graph graph = residual(Activation::kNone);
  EXPECT_EQ(count(graph, OpKind::kAdd), 0);
  const Op& first = backward_of(graph, OpKind::kBatchNormBackward, "first.norm");
  const Op& stem = backward_of(graph, OpKind::kBatchNormBackward, "stem.norm");
  const TensorId sum = first.outputs[BatchNormBackwardOut::kDDelta];
  ASSERT_NE(sum, kNoTensor);
  EXPECT_EQ(stem.inputs[BatchNormBackwardIn::kDY], sum);
  EXPECT_EQ(stem.outputs[BatchNormBackwardOut::kDDelta], kNoTensor);
}

TEST(FuseGradientSums, ASynchronisedNormAddsThemInItsSums) {
  GraphOptions options(Purpose::kTraining);
  options.lanes = 2;
  const Graph graph = residual(Activation::kRelu, options);
  const Op& sums = backward_of(graph, OpKind::kBatchNormSums, "first.norm");
  EXPECT_NE(sums.inputs[BatchNormBackwardIn::kDY2], kNoTensor);
  const Op& rest = backward_of(graph, OpKind::kBatchNormInputGradient, "first.norm");
  EXPECT_EQ(rest.inputs[BatchNormBackwardIn::kDY], sums.outputs[BatchNormBackwardOut::kDDelta]);
  EXPECT_EQ(rest.inputs[BatchNormBackwardIn::kDY2], kNoTensor);
  // The stem's norm has no d_delta, and both of its ops read the sum.
  EXPECT_EQ(count(graph, OpKind::kAdd), 1);
}

TEST(SaveReluMasks, TheBackwardPassReadsBitsInPlaceOfY) {
  for (const int lanes : {1, 2}) {
    GraphOptions options(Purpose::kTraining);
    options.lanes = lanes;
    Graph graph = residual(Activation::kRelu, options);
    const size_t ops = graph.ops.size();
    save_relu_masks(graph, always);
    EXPECT_EQ(graph.ops.size(), ops);
    const OpKind kind = lanes > 1 ? OpKind::kBatchNormSums : OpKind::kBatchNormBackward;
    for (const char* name : {"first.norm", "second.norm"}) {
      const Op& forward = backward_of(graph, OpKind::kBatchNorm, name);
      const Op& backward = backward_of(graph, kind, name);
      const TensorId mask = forward.outputs[BatchNormOut::kMask];
      ASSERT_NE(mask, kNoTensor);
      EXPECT_EQ(graph[mask].bytes() * 8 * sizeof(float),
                graph[forward.outputs[BatchNormOut::kY]].bytes());
      EXPECT_EQ(backward.inputs[BatchNormBackwardIn::kMask], mask);
      EXPECT_EQ(backward.inputs[BatchNormBackwardIn::kY], kNoTensor);
    }
    // Without delta, x has the answer.
    EXPECT_EQ(backward_of(graph, OpKind::kBatchNorm, "stem.norm").outputs[BatchNormOut::kMask],
              kNoTensor);
  }
}

TEST(SaveReluMasks, ADeviceThatHasNoSuchOpKeepsY) {
  Graph graph = residual(Activation::kRelu);
  const size_t tensors = graph.tensors.size();
  save_relu_masks(graph,
                  [](const Graph&, const Op& op) { return op.kind != OpKind::kBatchNormBackward; });
  EXPECT_EQ(graph.tensors.size(), tensors);
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kBatchNorm) {
      EXPECT_EQ(op.outputs[BatchNormOut::kMask], kNoTensor);
    }
  }
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

// Catches: a missing or doubled contribution to a gradient, an accumulation where the first writer
// must overwrite, and backward ops for tensors that nothing trainable lies behind.
#include "runtime/graph/autodiff.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"
#include "runtime/graph/ops/total_loss.h"
#include "runtime/graph/prediction.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

int count(const Graph& graph, OpKind kind) {
  return static_cast<int>(std::count_if(
      graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

const Op& last_of(const Graph& graph, OpKind kind) {
  return *std::find_if(
      graph.ops.rbegin(), graph.ops.rend(), [&](const Op& op) { return op.kind == kind; });
}

TEST(Autodiff, TheFirstLinearNeedsNoInputGradient) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 6}, DType::kF32);
  const TensorId target = builder.input("target", {4, 2}, DType::kF32);
  const TensorId w1 = builder.parameter("w1", {3, 6}, {}, true),
                 w2 = builder.parameter("w2", {2, 3}, {}, true);
  const TensorId h = ops::linear(builder, "first", x, w1, kNoTensor, Activation::kRelu);
  ops::mean_squared_error(
      builder, ops::linear(builder, "second", h, w2, kNoTensor, Activation::kNone), target);
  Graph graph = std::move(builder).finish();
  differentiate(graph);
  const Op& first = last_of(graph, OpKind::kLinearBackward);
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.outputs[LinearBackwardOut::kDX], kNoTensor);
  // The second layer's gradient passes the activation where it is made.
  EXPECT_EQ(count(graph, OpKind::kActivationBackward), 0);
  const Op& second = *std::find_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) {
    return op.kind == OpKind::kLinearBackward && op.name == "second";
  });
  EXPECT_EQ(second.as<LinearBackwardAttributes>().input_activation, Activation::kRelu);
  EXPECT_EQ(second.inputs[LinearBackwardIn::kSaved], h);
  EXPECT_EQ(second.outputs[LinearBackwardOut::kDX], first.inputs[LinearBackwardIn::kDY]);
  EXPECT_EQ(graph.shape(graph[w1].gradient), graph.shape(w1));
}

// Where something else reads the gradient, or makes it, the activation's own op stays.
TEST(Autodiff, AnActivationWhoseGradientComesFromElsewhereStaysAnOp) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 3}, DType::kF32);
  const TensorId target = builder.input("target", {4, 3}, DType::kF32);
  const TensorId w = builder.parameter("w", {3, 3}, {}, true),
                 w2 = builder.parameter("w2", {3, 3}, {}, true);
  const TensorId h = ops::linear(builder, "h", x, w, kNoTensor, Activation::kRelu);
  const TensorId y = ops::linear(builder, "y", h, w2, kNoTensor, Activation::kNone);
  ops::mean_squared_error(builder, ops::add(builder, "sum", h, y), target);
  Graph graph = std::move(builder).finish();
  differentiate(graph);
  EXPECT_EQ(count(graph, OpKind::kActivationBackward), 1);
}

TEST(Autodiff, ATensorUsedTwiceSumsItsGradients) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 3}, DType::kF32);
  const TensorId target = builder.input("target", {4, 3}, DType::kF32);
  const TensorId w = builder.parameter("w", {3, 3}, {}, true);
  const TensorId h = ops::linear(builder, "h", x, w, kNoTensor, Activation::kNone);
  const TensorId t = ops::activation(builder, "t", h, Activation::kTanh);
  ops::mean_squared_error(builder, ops::add(builder, "sum", h, t), target);
  Graph graph = std::move(builder).finish();
  differentiate(graph);
  EXPECT_EQ(count(graph, OpKind::kAdd), 2);  // one forward, one of gradients
  EXPECT_EQ(graph.shape(last_of(graph, OpKind::kAdd).outputs[AddOut::kY]), graph.shape(h));
}

TEST(Autodiff, AParameterUsedTwiceIsOverwrittenFirstAndAccumulatedThen) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId ids = builder.input("ids", {2, 5}, DType::kI32);
  const TensorId targets = builder.input("targets", {2, 5}, DType::kI32);
  const TensorId token = builder.parameter("token", {11, 4}, {}, true);
  const TensorId position = builder.parameter("position", {5, 4}, {}, true);
  const TensorId x = ops::embedding(builder, "embedding", ids, token, position);
  ops::softmax_cross_entropy(
      builder, ops::linear(builder, "head", x, token, kNoTensor, Activation::kNone), targets, 0);
  Graph graph = std::move(builder).finish();
  differentiate(graph);
  EXPECT_FALSE(
      last_of(graph, OpKind::kLinearBackward).as<LinearBackwardAttributes>().accumulate_weight);
  const Op& embedding = last_of(graph, OpKind::kEmbeddingBackward);
  EXPECT_TRUE(embedding.as<EmbeddingAttributes>().accumulate_token);
  EXPECT_FALSE(embedding.as<EmbeddingAttributes>().accumulate_position);
  EXPECT_EQ(embedding.outputs[EmbeddingBackwardOut::kDToken], graph[token].gradient);
}

TEST(Autodiff, TheLossGivesItsGradientInTheForwardPass) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 3}, DType::kF32);
  const TensorId labels = builder.input("labels", {4}, DType::kI32);
  const TensorId w = builder.parameter("w", {5, 3}, {}, true);
  ops::softmax_cross_entropy(
      builder, ops::linear(builder, "head", x, w, kNoTensor, Activation::kNone), labels, 0);
  Graph graph = std::move(builder).finish();
  differentiate(graph);
  const Op& loss = graph.ops[graph.forward_ops - 1];
  ASSERT_EQ(loss.outputs.size(), 2u);
  EXPECT_EQ(graph.ops[graph.forward_ops].inputs[LinearBackwardIn::kDY],
            loss.outputs[LossOut::kGradient]);
}

TEST(Autodiff, LossesOfSeveralOutputsAreWeighed) {
  GraphBuilder builder(Purpose::kTraining);
  const TensorId x = builder.input("x", {4, 3}, DType::kF32);
  const TensorId labels = builder.input("labels", {4}, DType::kI32);
  const auto head = [&](const std::string& name) {
    const TensorId w = builder.parameter(name + ".w", {5, 3}, {}, true);
    const TensorId logits = ops::linear(builder, name, x, w, kNoTensor, Activation::kNone);
    ops::softmax_cross_entropy(builder, logits, labels, 0);
    return logits;
  };
  const TensorId main = head("main"), other = head("other");
  ops::total_loss(builder, {1, 0.25f});
  Graph graph = std::move(builder).finish();
  differentiate(graph);
  ASSERT_EQ(graph.ops[graph.forward_ops - 1].kind, OpKind::kTotalLoss);
  // The pass of the loss that weighs 1 is as that of one loss.
  EXPECT_EQ(count(graph, OpKind::kPointwise), 1);
  const Op& weighed = last_of(graph, OpKind::kPointwise);
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kSoftmaxCrossEntropy && op.inputs[LossIn::kPrediction] == other) {
      EXPECT_EQ(weighed.inputs[PointwiseIn::kX], op.outputs[LossOut::kGradient]);
    }
    if (op.kind == OpKind::kLinearBackward && op.name == "other_backward") {
      EXPECT_EQ(op.inputs[LinearBackwardIn::kDY], weighed.outputs[PointwiseOut::kY]);
    }
  }
  EXPECT_EQ(prediction_of(graph), kNoTensor) << "a training graph writes over it";
  EXPECT_NE(graph[main].role, Role::kResult);
}

TEST(Autodiff, TheFirstPredictionOutlivesTheOtherLosses) {
  GraphBuilder builder(Purpose::kEvaluation);
  const TensorId target = builder.input("target", {4, 3}, DType::kF32);
  const TensorId a = builder.input("a", {4, 3}, DType::kF32),
                 b = builder.input("b", {4, 3}, DType::kF32);
  ops::mean_squared_error(builder, a, target);
  ops::mean_squared_error(builder, b, target);
  ops::total_loss(builder, {1, 2});
  const Graph graph = std::move(builder).finish();
  EXPECT_EQ(prediction_of(graph), a);
  EXPECT_EQ(graph.ops.back().inputs[TotalLossIn::kPrediction], a);
}

TEST(Schema, EveryKindHasANameAndACost) {
  for (size_t kind = 0; kind < static_cast<size_t>(OpKind::kCount); ++kind) {
    const OpSchema& schema = schema_of(static_cast<OpKind>(kind));
    EXPECT_FALSE(std::string(name_of(static_cast<OpKind>(kind))).empty());
    EXPECT_NE(schema.flops, nullptr);
  }
}

}  // namespace
}  // namespace lockstep::graph

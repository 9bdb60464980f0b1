// Catches: a head whose products keep an awkward number of outputs; padding of logits that an op
// reads which takes rows that lie close together; a weight or bias padded without the other; a
// gradient that has less room than its parameter; shapes that change.
#include "runtime/graph/ops/padded_head.h"

#include <gtest/gtest.h>

#include "runtime/graph/autodiff.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/linear_cross_entropy.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"
#include "runtime/graph/ops/total_loss.h"

namespace lockstep::graph {
namespace {

// A linear layer (5, 3) of four rows whose outputs are padded to multiples of 8 where they may be.
struct Head {
  explicit Head(GraphOptions options = with_multiple(8)) : builder(options) {}
  static GraphOptions with_multiple(int multiple) {
    GraphOptions options(Purpose::kTraining);
    options.head_multiple = multiple;
    return options;
  }
  TensorId layer(Activation activation = Activation::kNone) {
    return ops::linear(builder, "head", x, weight, bias, activation);
  }

  GraphBuilder builder;
  TensorId x = builder.input("x", {4, 3}, DType::kF32);
  TensorId labels = builder.input("labels", {4}, DType::kI32);
  TensorId weight = builder.parameter("weight", {5, 3}, {}, true);
  TensorId bias = builder.parameter("bias", {5}, {}, false);
};

TEST(PaddedHead, WeightBiasLogitsAndTheirGradientsHaveRoom) {
  Head head;
  const TensorId logits = head.layer();
  ops::softmax_cross_entropy(head.builder, logits, head.labels, 0);
  Graph graph = std::move(head.builder).finish();
  differentiate(graph);
  for (const TensorId parameter : {head.weight, head.bias}) {
    for (const TensorId id : {parameter, graph[parameter].gradient}) {
      EXPECT_EQ(graph[id].memory_rows(), 8) << graph[id].name;
      EXPECT_EQ(graph[id].shape[0], 5) << graph[id].name;
    }
  }
  EXPECT_EQ(graph[graph[head.weight].gradient].bytes(), 8u * 3 * 4);
  EXPECT_EQ(graph[head.bias].bytes(), 8u * 4);
  EXPECT_EQ(graph[logits].row_stride(), 8);
  EXPECT_EQ(graph[logits].shape, Shape({4, 5}));
}

TEST(PaddedHead, ChunksOfLogitsToo) {
  Head head;
  ops::linear_cross_entropy(head.builder, head.x, head.weight, head.bias, head.labels, 0, 2);
  const Graph& graph = head.builder.graph();
  EXPECT_EQ(graph[head.weight].memory_rows(), 8);
  EXPECT_EQ(graph.ops.back().as<LinearCrossEntropyAttributes>().stride, 8);
}

TEST(PaddedHead, AMultipleOrNoneStaysAsItIs) {
  for (const int multiple : {1, 5}) {
    Head head(Head::with_multiple(multiple));
    const TensorId logits = head.layer();
    ops::softmax_cross_entropy(head.builder, logits, head.labels, 0);
    EXPECT_EQ(head.builder[head.weight].padded_rows, 0);
    EXPECT_EQ(head.builder[logits].padded_columns, 0);
  }
}

// Other ops read rows that lie close together, and so do kernels of activations.
TEST(PaddedHead, LogitsThatOthersReadAreNotPadded) {
  for (const bool activated : {false, true}) {
    Head head;
    const TensorId logits = head.layer(activated ? Activation::kSilu : Activation::kNone);
    const TensorId next = ops::activation(head.builder, "next", logits, Activation::kTanh);
    ops::softmax_cross_entropy(head.builder, activated ? next : logits, head.labels, 0);
    ops::softmax_cross_entropy(head.builder, activated ? logits : next, head.labels, 0);
    ops::total_loss(head.builder, {1, 0.25f});
    for (const TensorId id : {logits, next}) EXPECT_EQ(head.builder[id].padded_columns, 0);
    EXPECT_EQ(head.builder[head.weight].padded_rows, 0);
  }
  Head head;
  const TensorId logits = head.layer(Activation::kRelu);
  ops::softmax_cross_entropy(head.builder, logits, head.labels, 0);
  EXPECT_EQ(head.builder[logits].padded_columns, 0);
}

// Zeros follow parameters only. The rows of the logits may still be longer.
TEST(PaddedHead, AComputedWeightOrBiasIsNotPadded) {
  for (const bool weight : {false, true}) {
    Head head;
    if (weight)
      head.weight = head.builder.activation_tensor("computed", {5, 3});
    else
      head.bias = head.builder.activation_tensor("computed", {5});
    const TensorId logits = head.layer();
    ops::softmax_cross_entropy(head.builder, logits, head.labels, 0);
    for (const TensorId id : {head.weight, head.bias})
      EXPECT_EQ(head.builder[id].padded_rows, 0) << weight;
    EXPECT_EQ(head.builder[logits].row_stride(), 8);
  }
}

TEST(PaddedHead, BothSidesOfALoraAreAlike) {
  GraphOptions options = Head::with_multiple(8);
  options.lora.rank = 2;
  options.lora.parts = [](const std::string&, int64_t rows) {
    return std::vector<OutputRows>{{0, rows}};
  };
  Head head(options);
  const TensorId logits = head.layer();
  ops::softmax_cross_entropy(head.builder, logits, head.labels, 0);
  const Graph& graph = head.builder.graph();
  const Op& add = graph.ops[graph.ops.size() - 2];
  ASSERT_EQ(add.kind, OpKind::kLoraAdd);
  EXPECT_EQ(add.outputs[LoraAddOut::kOut], logits);
  EXPECT_EQ(graph[logits].row_stride(), 8);
  EXPECT_EQ(graph[add.inputs[LoraAddIn::kY]].row_stride(), 8);
  EXPECT_EQ(graph[head.weight].memory_rows(), 8);
}

}  // namespace
}  // namespace lockstep::graph

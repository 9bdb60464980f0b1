// Catches: a fusion where another op reads what lies between, or where the result would be another
// one; ops that nothing reads and that are run all the same.
#include "runtime/graph/forward_fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/graph/autodiff.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::graph {
namespace {

std::vector<OpKind> kinds(const Graph& graph) {
  std::vector<OpKind> found;
  for (const Op& op : graph.ops) found.push_back(op.kind);
  return found;
}

class ForwardFusion : public ::testing::Test {
 protected:
  TensorId parameter(const std::string& name, const Shape& shape) {
    return builder_.parameter(name, shape, {}, true);
  }
  TensorId linear(const std::string& name, TensorId x, int64_t outputs) {
    const TensorId weight = parameter(name + ".w", {outputs, builder_.shape(x).columns()});
    return ops::linear(builder_, name, x, weight, kNoTensor, Activation::kNone);
  }
  TensorId norm(const std::string& name, TensorId x) {
    const int64_t columns = builder_.shape(x).columns();
    return ops::layer_norm(
               builder_, name, x, kNoTensor, parameter(name + ".g", {columns}), kNoTensor)
        .second;
  }
  TensorId batch_norm(const std::string& name, TensorId x) {
    const Shape channels = {builder_.shape(x).columns()};
    return ops::batch_norm(builder_,
                           name,
                           x,
                           kNoTensor,
                           {parameter(name + ".g", channels),
                            parameter(name + ".b", channels),
                            builder_.running_statistic(name + ".mean", channels, 0, 0.1f),
                            builder_.running_statistic(name + ".variance", channels, 1, 0.1f)},
                           {});
  }
  // Of the graph that ends in a loss of y.
  std::vector<OpKind> fused(TensorId y) {
    ops::mean_squared_error(builder_, y, builder_.input("target", builder_.shape(y), DType::kF32));
    graph_ = std::move(builder_).finish();
    fuse_forward(graph_);
    EXPECT_EQ(graph_.forward_ops, graph_.ops.size());
    return kinds(graph_);
  }

  GraphBuilder builder_{Purpose::kTraining};
  TensorId x_ = builder_.input("x", {4, 6}, DType::kF32);
  Graph graph_;
};

TEST_F(ForwardFusion, AnActivationBecomesPartOfItsLayer) {
  TensorId y = linear("a", x_, 8);
  y = ops::reshape(builder_, "rows", y, {2, 2, 8});
  y = ops::activation(builder_, "gelu", y, Activation::kGeluErf);
  y = linear("b", ops::reshape(builder_, "flat", y, {4, 8}), 3);
  EXPECT_EQ(fused(y), (std::vector{OpKind::kLinear, OpKind::kLinear, OpKind::kMeanSquaredError}));
  EXPECT_EQ(graph_.ops[0].as<LinearAttributes>().activation, Activation::kGeluErf);
  ASSERT_NE(graph_.ops[0].outputs[LinearOut::kPre], kNoTensor)
      << "the gradient needs what was before";
  EXPECT_EQ(graph_.shape(graph_.ops[0].outputs[LinearOut::kPre]), (Shape{4, 8}));
  EXPECT_EQ(graph_.ops[1].inputs[LinearIn::kX], graph_.ops[0].outputs[LinearOut::kY]);
}

TEST_F(ForwardFusion, AnActivationOfWhatOthersReadStays) {
  const TensorId a = linear("a", x_, 6);
  const TensorId b = ops::activation(builder_, "relu", a, Activation::kRelu);
  EXPECT_EQ(
      fused(ops::add(builder_, "sum", a, b)),
      (std::vector{OpKind::kLinear, OpKind::kActivation, OpKind::kAdd, OpKind::kMeanSquaredError}));
}

TEST_F(ForwardFusion, ASumIsComputedByTheNormThatReadsItFirst) {
  const TensorId a = linear("a", x_, 6), b = linear("b", x_, 6);
  const TensorId sum = ops::add(builder_, "sum", a, b);
  const TensorId normed = norm("norm", sum);
  EXPECT_EQ(fused(ops::add(builder_, "again", sum, normed)),
            (std::vector{OpKind::kLinear,
                         OpKind::kLinear,
                         OpKind::kLayerNorm,
                         OpKind::kAdd,
                         OpKind::kMeanSquaredError}));
  const Op& op = graph_.ops[2];
  EXPECT_EQ(op.inputs[RowNormIn::kX], a);
  EXPECT_EQ(op.inputs[RowNormIn::kDelta], b);
  EXPECT_EQ(op.outputs[RowNormOut::kSum], sum);
}

// A residual block that is written layer by layer, whose shortcut is made after its branch.
TEST_F(ForwardFusion, AResidualBlocksNormAddsItsShortcut) {
  const TensorId branch = batch_norm("branch", linear("a", x_, 6));
  const TensorId shortcut = batch_norm("shortcut", linear("b", x_, 6));
  const TensorId sum = ops::add(builder_, "sum", branch, shortcut);
  EXPECT_EQ(fused(ops::activation(builder_, "relu", sum, Activation::kRelu)),
            (std::vector{OpKind::kLinear,
                         OpKind::kLinear,
                         OpKind::kBatchNorm,
                         OpKind::kBatchNorm,
                         OpKind::kMeanSquaredError}));
  const Op &inner = graph_.ops[2], &last = graph_.ops[3];
  EXPECT_EQ(inner.name, "shortcut");
  EXPECT_EQ(last.name, "branch");
  EXPECT_EQ(last.inputs[BatchNormIn::kDelta], inner.outputs[BatchNormOut::kY]);
  EXPECT_EQ(last.as<BatchNormAttributes>().activation, Activation::kRelu);
  EXPECT_EQ(inner.as<BatchNormAttributes>().activation, Activation::kNone);
}

TEST_F(ForwardFusion, ANormThatOthersReadAddsNothing) {
  const TensorId a = linear("a", x_, 6), normed = batch_norm("norm", a);
  const TensorId sum = ops::add(builder_, "sum", normed, a);
  fused(ops::add(builder_, "again", sum, normed));
  EXPECT_EQ(std::ranges::count(kinds(graph_), OpKind::kAdd), 2);
  EXPECT_EQ(graph_.ops[1].inputs[BatchNormIn::kDelta], kNoTensor);
}

// An activation of which the backward pass of a norm knows nothing, or one of two.
TEST_F(ForwardFusion, OtherActivationsOfANormStay) {
  const TensorId a = batch_norm("a", x_), b = batch_norm("b", x_);
  const TensorId silu = ops::activation(builder_, "silu", a, Activation::kSilu);
  TensorId relu = ops::activation(builder_, "relu", b, Activation::kRelu);
  relu = ops::activation(builder_, "relu6", relu, Activation::kRelu6);
  fused(ops::add(builder_, "sum", silu, relu));
  EXPECT_EQ(std::ranges::count(kinds(graph_), OpKind::kActivation), 2);
}

TEST_F(ForwardFusion, ASumThatIsReadBeforeTheNormStays) {
  const TensorId a = linear("a", x_, 6), b = linear("b", x_, 6);
  const TensorId sum = ops::add(builder_, "sum", a, b);
  const TensorId other = linear("c", sum, 6);
  const std::vector<OpKind> found = fused(ops::add(builder_, "again", other, norm("norm", sum)));
  EXPECT_EQ(found[2], OpKind::kAdd);
  EXPECT_EQ(graph_.ops[4].inputs[RowNormIn::kDelta], kNoTensor);
}

// What a norm gives may decide alone which elements of the sum are kept: then no gradient comes
// back to it.
TEST_F(ForwardFusion, ASumHasAGradientWhereItsNormHasNone) {
  for (const bool rms : {false, true}) {
    GraphBuilder builder{Purpose::kTraining};
    const TensorId x = builder.input("x", {4, 6}, DType::kF32);
    const auto layer = [&](const std::string& name) {
      const TensorId weight = builder.parameter(name + ".w", {6, 6}, {}, true);
      return ops::linear(builder, name, x, weight, kNoTensor, Activation::kNone);
    };
    const TensorId sum = ops::add(builder, "sum", layer("a"), layer("b"));
    const TensorId gain = builder.constant("gain", {6}, std::vector<float>(6, 1));
    const TensorId normed =
        rms ? ops::rms_norm(builder, "norm", sum, kNoTensor, gain, 1e-6f).second
            : ops::layer_norm(builder, "norm", sum, kNoTensor, gain, kNoTensor).second;
    PointwiseProgram keep;
    const int zero = keep.constant(0);
    const int above = keep.append(PointwiseFunction::kLess, zero, keep.input(1));
    keep.append(PointwiseFunction::kMul, keep.input(0), above);
    const TensorId y = ops::pointwise(builder, "kept", {sum, normed}, keep);
    ops::mean_squared_error(builder, y, builder.input("target", {4, 6}, DType::kF32));
    Graph graph = std::move(builder).finish();
    fuse_forward(graph);
    differentiate(graph);
    const std::vector<OpKind> found = kinds(graph);
    EXPECT_EQ(std::ranges::count(found, OpKind::kAdd), 0) << "the norm computes the sum";
    EXPECT_EQ(std::ranges::count(found, OpKind::kLinearBackward), 2);
    EXPECT_EQ(std::ranges::count(found, OpKind::kLayerNormBackward), 0);
    EXPECT_EQ(std::ranges::count(found, OpKind::kRmsNormBackward), 0);
  }
}

TEST_F(ForwardFusion, ColumnsThatAreCutApartAndJoinedAreTheTensor) {
  const TensorId all = linear("a", x_, 12);
  std::vector<TensorId> parts;
  for (int64_t k = 0; k < 3; ++k) {
    const TensorId part = ops::slice(builder_, "part", all, {0, 4 * k}, {1, 1}, {4, 4});
    parts.push_back(ops::reshape(builder_, "heads", part, {4, 2, 2}));
    parts.back() = ops::reshape(builder_, "rows", parts.back(), {4, 4});
  }
  EXPECT_EQ(fused(ops::concat(builder_, "joined", parts, 1)),
            (std::vector{OpKind::kLinear, OpKind::kMeanSquaredError}));
}

TEST_F(ForwardFusion, ReshapesOneAfterTheOtherAreOne) {
  TensorId y = linear("a", x_, 6);
  y = ops::reshape(builder_, "first", y, {2, 2, 6});
  y = ops::reshape(builder_, "second", y, {2, 12});
  EXPECT_EQ(fused(y), (std::vector{OpKind::kLinear, OpKind::kReshape, OpKind::kMeanSquaredError}));
  EXPECT_EQ(graph_.shape(graph_.ops[1].outputs[RearrangeOut::kY]), (Shape{2, 12}));
}

TEST_F(ForwardFusion, LinearLayersReadRowsAsTheyAre) {
  const TensorId a = ops::reshape(builder_, "samples", linear("a", x_, 6), {2, 2, 6});
  const TensorId b = norm("norm", a);
  const TensorId y = linear("b", ops::reshape(builder_, "rows", b, {4, 6}), 3);
  EXPECT_EQ(fused(y),
            (std::vector{OpKind::kLinear,
                         OpKind::kReshape,
                         OpKind::kLayerNorm,
                         OpKind::kLinear,
                         OpKind::kMeanSquaredError}));
  EXPECT_EQ(graph_.ops[3].inputs[LinearIn::kX], b);
}

TEST_F(ForwardFusion, ColumnsInAnotherOrderAreJoined) {
  const TensorId all = linear("a", x_, 12);
  std::vector<TensorId> parts;
  for (const int64_t first : {4, 0, 8})
    parts.push_back(ops::slice(builder_, "part", all, {0, first}, {1, 1}, {4, 4}));
  const std::vector<OpKind> found = fused(ops::concat(builder_, "joined", parts, 1));
  EXPECT_EQ(found.size(), 6u);
  EXPECT_EQ(found[4], OpKind::kConcat);
}

}  // namespace
}  // namespace lockstep::graph

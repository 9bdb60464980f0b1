// Catches: chains of pointwise nodes, and products with what stands around them, that are no longer
// one op, are one where that costs memory or work, or compute something else than the nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

void expect_ops(const LoweredCase& of, std::map<graph::OpKind, size_t> counts) {
  for (const auto& [kind, count] : counts)
    EXPECT_EQ(ops_of(of, kind), count) << graph::name_of(kind);
  expect_outputs(of, 1);
  expect_slopes(of);
}

// A chain is one op; as TorchScript writes GELU it reads x four times.
TEST(LoweredChain, IsOneOp) {
  const LoweredCase gelu = of_nodes({{{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
    int y = builder.node("Div", {inputs[0], number(builder, std::sqrt(2.0))});
    y = builder.node("Add", {builder.node("Erf", {y}), number(builder, 1)});
    return builder.node("Mul", {builder.node("Mul", {inputs[0], y}), number(builder, 0.5)});
  });
  expect_ops(gelu, {{graph::OpKind::kPointwise, 2}});  // with the test's own
  const LoweredCase silu = of_nodes({{{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
    return builder.node("Mul", {inputs[0], builder.node("Sigmoid", {inputs[0]})});
  });
  expect_ops(silu, {{graph::OpKind::kPointwise, 1}, {graph::OpKind::kActivation, 1}});
}

// The sum is all that the backward pass needs: fused, both of its terms would be kept.
TEST(LoweredChain, KeepsNoMoreForTheBackwardPass) {
  const LoweredCase of =
      of_nodes({{{2, 5}}, {{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
        return builder.node("Relu", {builder.node("Add", inputs)});
      });
  expect_ops(
      of,
      {{graph::OpKind::kPointwise, 1}, {graph::OpKind::kAdd, 1}, {graph::OpKind::kActivation, 1}});
}

// A value that others read too is computed once.
TEST(LoweredChain, EndsWhereOthersRead) {
  const LoweredCase of = of_nodes({{{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
    const int y = builder.node("Exp", {inputs[0]});
    return builder.node("Mul", {builder.node("Sin", {y}), builder.node("Cos", {y})});
  });
  expect_ops(of, {{graph::OpKind::kPointwise, 3}});
}

// Products take transposed matrices and the scale behind them.
TEST(LoweredProduct, TakesTransposesAndScales) {
  const LoweredCase of =
      of_nodes({{{2, 3, 4}}, {{2, 5, 4}}}, [](FileBuilder& builder, const Inputs& inputs) {
        const int b = builder.node("Transpose", {inputs[1]}, {{"perm", Integers{0, 2, 1}}});
        return builder.node("Div", {builder.node("MatMul", {inputs[0], b}), number(builder, 2)});
      });
  expect_ops(of,
             {{graph::OpKind::kPointwise, 1},
              {graph::OpKind::kBatchedMatmul, 1},
              {graph::OpKind::kRearrange, 0}});
}

}  // namespace
}  // namespace lockstep::onnx

// Catches: whole numbers that a network computes and that choose other elements than ONNX says, or
// gradients of what they choose that are not the slope.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

// Of what `nodes` makes of x and whole numbers that are computed from p; which also scales it, as
// what has no gradient is no parameter.
LoweredCase with_indices(const Extents& x, const Drawn& p, const AddNodes& nodes) {
  return of_nodes({{x}, p}, [=](FileBuilder& builder, const Inputs& inputs) {
    const int indices = builder.node("Cast", {inputs[1]}, {{"to", int64_t{7}}});
    return builder.node(
        "Mul", {nodes(builder, {inputs[0], indices}), builder.node("ReduceSum", {inputs[1]})});
  });
}

AddNodes of_op(const std::string& op, const NodeAttributes& attributes) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    return builder.node(op, inputs, attributes);
  };
}

TEST(LoweredIndices, MayBeComputed) {
  const std::vector<LoweredCase> cases = {
      with_indices({4, 3}, {{2, 2}, -2.9, 2.9}, of_op("Gather", {})),
      with_indices({3, 4}, {{2, 4}, -2.9, 2.9}, of_op("GatherElements", {{"axis", int64_t{0}}})),
      with_indices({3, 3, 2}, {{5, 2}, -2.9, 2.9}, of_op("GatherND", {})),
      with_indices(
          {2, 3, 2}, {{2, 4, 1}, -2.9, 2.9}, of_op("GatherND", {{"batch_dims", int64_t{1}}}))};
  for (const LoweredCase& of : cases) {
    for (uint64_t seed = 1; seed <= 5; ++seed) expect_outputs(of, seed);
    expect_slopes(of);
  }
}

TEST(LoweredIndices, BecomeRowsOfOnes) {
  for (const int64_t axis : {-1, 0}) {
    const AddNodes one_hot = [=](FileBuilder& builder, const Inputs& inputs) {
      const int values = builder.initializer(
          "values", array_of(builder.file().initializers.front().array.type, {2}, {-0.5, 2}));
      const int rows =
          builder.node("OneHot", {inputs[1], number(builder, 3), values}, {{"axis", axis}});
      return builder.node("Mul", {rows, inputs[0]});
    };
    const LoweredCase of = with_indices({1}, {{3, 3}, -2.9, 3.9}, one_hot);
    for (uint64_t seed = 1; seed <= 5; ++seed) expect_outputs(of, seed);
    expect_slopes(of);
  }
}

TEST(LoweredIndices, OfTheLargestElementsAreTheFirstOrLastOfThem) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const int64_t last : {0, 1}) {
      const LoweredCase of = of_nodes({{{3, 7}}}, [=](FileBuilder& builder, const Inputs& inputs) {
        return builder.node(
            op,
            {builder.node("Round", {inputs[0]})},  // few numbers, many of them equal
            {{"axis", int64_t{1}}, {"select_last_index", last}});
      });
      for (uint64_t seed = 1; seed <= 5; ++seed) expect_outputs(of, seed);
    }
  }
}

}  // namespace
}  // namespace lockstep::onnx

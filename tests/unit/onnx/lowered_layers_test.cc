// Catches: norms and rotary embeddings of files that compute something else than what ONNX says
// they stand for, in any of their forms, or whose gradient is not the slope; forms that no longer
// become the ops of the house.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

// ---- Norms ----

AddNodes norm_in_steps(bool centred, const Integers& axes) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const auto mean = [&](int x) {
      return builder.node("ReduceMean", {x, integers(builder, axes)});
    };
    int x = inputs[0];
    if (centred) x = builder.node("Sub", {x, mean(x)});
    const int sum =
        builder.node("Add", {mean(builder.node("Mul", {x, x})), number(builder, 0.125f)});
    x = builder.node("Mul", {builder.node("Div", {x, builder.node("Sqrt", {sum})}), inputs[1]});
    return inputs.size() > 2 ? builder.node("Add", {x, inputs[2]}) : x;
  };
}

LoweredCase norm_case(const std::string& op, std::vector<Drawn> inputs, const Integers& axes) {
  const int64_t axis = axes.front();
  return {std::move(inputs),
          [=](FileBuilder& builder, const Inputs& given) {
            return builder.node(op, given, {{"axis", axis}, {"epsilon", 0.125f}});
          },
          norm_in_steps(op == "LayerNormalization", axes)};
}

TEST(LoweredNorm, WithItsOwnParametersIsOneOp) {
  const LoweredCase layer = norm_case("LayerNormalization", {{{3, 2, 5}}, {{5}}, {{5}}}, {2}),
                    rms = norm_case("RMSNormalization", {{{3, 2, 5}}, {{5}}}, {2});
  EXPECT_EQ(ops_of(layer, graph::OpKind::kLayerNorm), 1u);
  EXPECT_EQ(ops_of(rms, graph::OpKind::kRmsNorm), 1u);
  for (const LoweredCase& of : {layer, rms}) {
    expect_outputs(of, 1);
    expect_slopes(of);
  }
}

TEST(LoweredNorm, OverSeveralAxesOrWithConstantsIsSteps) {
  const Drawn ones{{5}, 0, 0, ElementType::kDouble, {1, 1, 1, 1, 1}};
  for (const char* op : {"LayerNormalization", "RMSNormalization"}) {
    for (const LoweredCase& of : {norm_case(op, {{{3, 2, 5}}, {{2, 5}}}, {1, 2}),
                                  norm_case(op, {{{3, 2, 5}}, ones}, {2})}) {
      EXPECT_EQ(ops_of(of, graph::OpKind::kLayerNorm) + ops_of(of, graph::OpKind::kRmsNorm), 0u);
      expect_outputs(of, 1);
      expect_slopes(of);
    }
  }
}

// In training, of gains and biases that are computed of parameters, or constant.
TEST(LoweredBatchNorm, GainsAndBiasesMayBeNoParameters) {
  const Drawn zeros{{3}, 0, 0, ElementType::kDouble, {0, 0, 0}},
      ones{{3}, 0, 0, ElementType::kDouble, {1, 1, 1}},
      fixed{{3}, 0, 0, ElementType::kDouble, {0.5, -2, 1.5}};
  const auto gain = [](FileBuilder& builder, const Inputs& in) {
    return builder.node("Add", {in[1], number(builder, 1)});
  };
  const AddNodes norm = [=](FileBuilder& builder, const Inputs& in) {
    const int bias = builder.node("Neg", {in[2]});
    return builder.node("BatchNormalization",
                        {in[0], gain(builder, in), bias, in[3], in[4]},
                        {{"epsilon", 0.125f}});
  };
  const AddNodes judge = [=](FileBuilder& builder, const Inputs& in) {
    const int y = norm_in_steps(true, {0})(builder, {in[0], gain(builder, in)});
    return builder.node("Sub", {y, in[2]});
  };
  for (const auto& [w, b] :
       {std::pair(Drawn{{3}}, Drawn{{3}}), {fixed, Drawn{{3}}}, {fixed, zeros}}) {
    const LoweredCase of = {{{{6, 3}}, w, b, zeros, ones}, norm, judge};
    EXPECT_EQ(ops_of(of, graph::OpKind::kBatchNorm), 1u);
    expect_slopes(of);
  }
}

// ---- Rotary embedding ----

// Of x (B, H, T, D) whose first 2 P elements turn.
AddNodes rotary_in_steps(int64_t size, int64_t pairs, bool interleaved) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const auto part = [&](int64_t start, int64_t end, int64_t step) {
      return builder.node("Slice",
                          {inputs[0],
                           integers(builder, {start}),
                           integers(builder, {end}),
                           integers(builder, {3}),
                           integers(builder, {step})});
    };
    const int64_t turned = 2 * pairs;
    const int a = interleaved ? part(0, turned, 2) : part(0, pairs, 1);
    const int b = interleaved ? part(1, turned, 2) : part(pairs, turned, 1);
    Inputs angles;
    for (const size_t place : {1, 2}) {
      const int rows =
          inputs.size() > 3 ? builder.node("Gather", {inputs[place], inputs[3]}) : inputs[place];
      angles.push_back(builder.node("Unsqueeze", {rows, integers(builder, {1})}));
    }
    const auto times = [&](int x, int y) { return builder.node("Mul", {x, y}); };
    int first = builder.node("Sub", {times(a, angles[0]), times(b, angles[1])});
    int second = builder.node("Add", {times(a, angles[1]), times(b, angles[0])});
    if (interleaved) {
      first = builder.node("Unsqueeze", {first, integers(builder, {4})});
      second = builder.node("Unsqueeze", {second, integers(builder, {4})});
    }
    int y = builder.node("Concat", {first, second}, {{"axis", int64_t{-1}}});
    if (interleaved) y = reshape(builder, y, {2, 3, 4, turned});
    if (turned == size) return y;
    return builder.node("Concat", {y, part(turned, size, 1)}, {{"axis", int64_t{-1}}});
  };
}

TEST(LoweredRotaryEmbedding, TurnsPairs) {
  for (const int64_t pairs : {3, 2}) {
    for (const bool interleaved : {false, true}) {
      for (const bool ids : {false, true}) {
        const Extents table = ids ? Extents{6, pairs} : Extents{2, 4, pairs};
        LoweredCase of{{{{2, 3, 4, 6}}, {table}, {table}},
                       [=](FileBuilder& builder, const Inputs& inputs) {
                         return builder.node("RotaryEmbedding",
                                             inputs,
                                             {{"interleaved", int64_t{interleaved}},
                                              {"rotary_embedding_dim", 2 * pairs}});
                       },
                       rotary_in_steps(6, pairs, interleaved)};
        if (ids) of.inputs.push_back({{2, 4}, 0, 0, ElementType::kInt64, {0, 5, 2, 1, 3, 3, 4, 0}});
        expect_outputs(of, 1);
        expect_slopes(of);
      }
    }
  }
}

// ---- Parts without an element ----

TEST(LoweredConcat, LeavesOutPartsWithoutAnElement) {
  LoweredCase of{{{{2, 3}}, {{2, 2}}}};
  of.judge = [](FileBuilder& builder, const Inputs& inputs) {
    return builder.node("Concat", inputs, {{"axis", int64_t{1}}});
  };
  of.nodes = [](FileBuilder& builder, const Inputs& inputs) {
    const int none = builder.node(
        "Slice",
        {inputs[0], integers(builder, {3}), integers(builder, {9}), integers(builder, {1})});
    return builder.node("Concat", {inputs[0], none, inputs[1]}, {{"axis", int64_t{1}}});
  };
  expect_outputs(of, 1);
  expect_slopes(of);
}

}  // namespace
}  // namespace lockstep::onnx

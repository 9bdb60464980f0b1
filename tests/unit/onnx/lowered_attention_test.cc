// Catches: attention of files, as one node or written as products, that computes something else
// than what ONNX says it stands for, or whose gradient is not the slope; forms that no longer
// become the op of the house; elements that are moved for nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

struct Heads {
  int64_t batch = 2, heads = 4, kv_heads = 2, queries = 5, keys = 5, size = 3;
};

// Of q, k and v by heads, and where `masked` a mask that is added.
AddNodes attention_in_steps(Heads h, double scale, bool causal, bool masked, double softcap = 0) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const int64_t group = h.heads / h.kv_heads;
    const int q = reshape(builder, inputs[0], {h.batch, h.kv_heads, group, h.queries, h.size});
    int scores =
        builder.node("Einsum", {q, inputs[1]}, {{"equation", std::string("bkgqd,bksd->bkgqs")}});
    scores = builder.node("Mul", {scores, number(builder, scale)});
    if (softcap > 0) {
      scores = builder.node("Div", {scores, number(builder, softcap)});
      scores = builder.node("Mul", {builder.node("Tanh", {scores}), number(builder, softcap)});
    }
    scores = reshape(builder, scores, {h.batch, h.heads, h.queries, h.keys});
    if (masked) scores = builder.node("Add", {scores, inputs[3]});
    if (causal) {
      std::vector<double> hidden;
      for (int64_t i = 0; i < h.queries * h.keys; ++i)
        hidden.push_back(i % h.keys > i / h.keys ? -1e30 : 0);
      const int mask = builder.initializer(
          "hidden", array_of(ElementType::kDouble, {h.queries, h.keys}, hidden));
      scores = builder.node("Add", {scores, mask});
    }
    const int shares = reshape(builder,
                               builder.node("Softmax", {scores}),
                               {h.batch, h.kv_heads, group, h.queries, h.keys});
    const int y = builder.node(
        "Einsum", {shares, inputs[2]}, {{"equation", std::string("bkgqs,bksd->bkgqd")}});
    return reshape(builder, y, {h.batch, h.heads, h.queries, h.size});
  };
}

AddNodes attention(const Attributes& attributes) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    return builder.node("Attention", inputs, attributes);
  };
}

LoweredCase attention_case(Heads h, const Attributes& attributes, const AddNodes& judge) {
  return {{{{h.batch, h.heads, h.queries, h.size}},
           {{h.batch, h.kv_heads, h.keys, h.size}},
           {{h.batch, h.kv_heads, h.keys, h.size}}},
          attention(attributes),
          judge};
}

void expect_all(const LoweredCase& of, size_t fused) {
  EXPECT_EQ(ops_of(of, OpKind::kAttention), fused);
  expect_outputs(of, 1);
  expect_slopes(of);
}

const double kScale = 1 / std::sqrt(3.0);

TEST(LoweredAttention, OfItselfIsOneOp) {
  const Heads shared, own{.kv_heads = 4};
  for (const Heads& h : {shared, own}) {
    expect_all(attention_case(h, {}, attention_in_steps(h, kScale, false, false)), 1);
    expect_all(
        attention_case(h, {{"is_causal", int64_t{1}}}, attention_in_steps(h, kScale, true, false)),
        1);
  }
}

// As exporters write it: a constant that is true up to the diagonal, or numbers.
TEST(LoweredAttention, MasksThatAreCausalAreFound) {
  const Heads h;
  for (const bool truth : {true, false}) {
    LoweredCase of = attention_case(h, {}, attention_in_steps(h, kScale, true, false));
    Drawn mask{{h.queries, h.keys}, 0, 0, truth ? ElementType::kBool : ElementType::kDouble, {}};
    for (int64_t i = 0; i < h.queries * h.keys; ++i) {
      const bool seen = i % h.keys <= i / h.keys;
      mask.values.push_back(truth ? seen : seen ? 0 : -std::numeric_limits<double>::infinity());
    }
    of.inputs.push_back(mask);
    expect_all(of, 1);
  }
}

TEST(LoweredAttention, WithMasksAndOtherLengthsIsSteps) {
  const Heads h{.keys = 7};
  LoweredCase of = attention_case(
      h, {{"scale", 0.25f}, {"softcap", 1.5f}}, attention_in_steps(h, 0.25, false, true, 1.5));
  of.inputs.push_back({{h.batch, h.heads, h.queries, h.keys}});
  expect_all(of, 0);
  of.inputs.back() = {{h.queries, h.keys}};
  expect_all(of, 0);
  expect_all(
      attention_case(h, {{"is_causal", int64_t{1}}}, attention_in_steps(h, kScale, true, false)),
      0);
}

// ONNX hides the keys that a mask does not reach, also where it is causal or shows all that it
// reaches.
TEST(LoweredAttention, MasksThatAreTooShortHideTheRest) {
  const Heads h{.keys = 7};
  for (const bool causal : {false, true}) {
    LoweredCase of = attention_case(h, {}, attention_in_steps(h, kScale, false, true));
    Drawn mask{{h.queries, h.queries}, 0, 0, ElementType::kDouble, {}},
        whole{{h.queries, h.keys}, 0, 0, ElementType::kDouble, {}};
    for (int64_t i = 0; i < h.queries * h.keys; ++i) {
      const int64_t query = i / h.keys, key = i % h.keys;
      const bool seen = key < h.queries && (!causal || key <= query);
      whole.values.push_back(seen ? 0 : -1e30);
      if (key < h.queries) mask.values.push_back(seen ? 0 : -1e30);
    }
    of.inputs.push_back(mask);
    of.inputs.push_back(whole);
    of.nodes = [](FileBuilder& builder, const Inputs& inputs) {
      return builder.node("Attention", {inputs[0], inputs[1], inputs[2], inputs[3]});
    };
    of.judge = [h](FileBuilder& builder, const Inputs& inputs) {
      return attention_in_steps(h, kScale, false, true)(
          builder, {inputs[0], inputs[1], inputs[2], inputs[4]});
    };
    expect_outputs(of, 1);
  }
}

// From projections by tokens to the projection behind it nothing is moved.
TEST(LoweredAttention, BetweenTransposesMovesNothing) {
  const Heads h{.kv_heads = 4};
  const Extents by_tokens = {h.batch, h.keys, h.heads, h.size};
  const AddNodes steps = attention_in_steps(h, kScale, false, false);
  const auto around = [=](const AddNodes& inner) {
    return [=](FileBuilder& builder, const Inputs& inputs) {
      Inputs swapped;
      for (const int input : inputs) swapped.push_back(swap_axes(builder, input));
      return reshape(builder,
                     swap_axes(builder, inner(builder, swapped)),
                     {h.batch, h.queries, h.heads * h.size});
    };
  };
  const LoweredCase of{
      {{by_tokens}, {by_tokens}, {by_tokens}}, around(attention({})), around(steps)};
  expect_all(of, 1);
  EXPECT_EQ(ops_of(of, OpKind::kRearrange), 0u);
}

TEST(LoweredAttention, OfThreeAxesHasItsHeadsInOne) {
  const Heads h;
  const auto split = [=](FileBuilder& builder, int x, int64_t heads) {
    return swap_axes(builder, reshape(builder, x, {h.batch, h.keys, heads, h.size}));
  };
  const AddNodes steps = attention_in_steps(h, kScale, true, false);
  const AddNodes judge = [=](FileBuilder& builder, const Inputs& inputs) {
    const int y = steps(builder,
                        {split(builder, inputs[0], h.heads),
                         split(builder, inputs[1], h.kv_heads),
                         split(builder, inputs[2], h.kv_heads)});
    return reshape(builder, swap_axes(builder, y), {h.batch, h.queries, h.heads * h.size});
  };
  const Extents rows = {h.batch, h.keys, h.kv_heads * h.size};
  expect_all(
      {{{{h.batch, h.queries, h.heads * h.size}}, {rows}, {rows}},
       attention(
           {{"q_num_heads", h.heads}, {"kv_num_heads", h.kv_heads}, {"is_causal", int64_t{1}}}),
       judge},
      1);
}

// As files before opset 23 have it: k is transposed beforehand, v is computed after the first
// product.
enum class Written { kPlain, kDivided, kAdded, kChosen, kMasked, kDropped };

AddNodes written_attention(Heads h, Written way) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const int k = builder.node("Transpose", {inputs[1]}, {{"perm", Integers{0, 1, 3, 2}}});
    int x = builder.node("MatMul", {inputs[0], k});
    const int v = builder.node("Neg", {inputs[2]});
    x = way == Written::kDivided ? builder.node("Div", {x, number(builder, std::sqrt(3.0))})
                                 : builder.node("Mul", {x, number(builder, 0.25)});
    std::vector<double> seen, hidden;
    for (int64_t i = 0; i < h.queries * h.keys; ++i) {
      seen.push_back(i % h.keys <= i / h.keys ? 1 : 0);
      hidden.push_back(seen.back() == 1 ? 0 : -1e30);
    }
    const ElementType type = builder.file().initializers.front().array.type;
    const Extents square = {h.queries, h.keys};
    if (way == Written::kAdded)
      x = builder.node("Add", {builder.initializer("m", array_of(type, square, hidden)), x});
    if (way == Written::kChosen) {
      const int mask = builder.initializer("m", array_of(ElementType::kBool, square, seen));
      x = builder.node("Where", {mask, x, number(builder, -1e30)});
    }
    if (way == Written::kMasked) x = builder.node("Add", {x, inputs[3]});
    x = builder.node("Softmax", {x}, {{"axis", int64_t{-1}}});
    if (way == Written::kDropped) x = builder.node("Dropout", {x}, {{"ratio", 0.25f}});
    return builder.node("MatMul", {x, v});
  };
}

TEST(LoweredAttention, WrittenAsProductsIsOneOp) {
  const Heads h{.kv_heads = 4};
  const Drawn heads{{h.batch, h.heads, h.keys, h.size}};
  for (const Written way : {Written::kPlain, Written::kDivided, Written::kAdded, Written::kChosen})
    expect_all(of_nodes({heads, heads, heads}, written_attention(h, way)), 1);
  const Drawn mask{{h.queries, h.keys}};
  expect_all(of_nodes({heads, heads, heads, mask}, written_attention(h, Written::kMasked)), 0);
  EXPECT_EQ(ops_of(of_nodes({heads, heads, heads}, written_attention(h, Written::kDropped)),
                   OpKind::kAttention),
            1u);
}

// v hangs on the scores, so that it is not there before them.
TEST(LoweredAttention, OfAValueThatTheScoresDecideIsSteps) {
  const Drawn heads{{2, 4, 5, 3}};
  const AddNodes nodes = [](FileBuilder& builder, const Inputs& inputs) {
    const int k = builder.node("Transpose", {inputs[1]}, {{"perm", Integers{0, 1, 3, 2}}});
    const int x = builder.node("Softmax", {builder.node("MatMul", {inputs[0], k})});
    const int v = builder.node("MatMul", {x, inputs[2]});
    return builder.node("MatMul", {x, v});
  };
  expect_all(of_nodes({heads, heads, heads}, nodes), 0);
}

}  // namespace
}  // namespace lockstep::onnx

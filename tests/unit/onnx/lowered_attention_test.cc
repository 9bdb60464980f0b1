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

AddNodes attention(const NodeAttributes& attributes) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    return builder.node("Attention", inputs, attributes);
  };
}

LoweredCase attention_case(Heads h, const NodeAttributes& attributes, const AddNodes& judge) {
  return {{{{h.batch, h.heads, h.queries, h.size}},
           {{h.batch, h.kv_heads, h.keys, h.size}},
           {{h.batch, h.kv_heads, h.keys, h.size}}},
          attention(attributes),
          judge};
}

void expect_all(const LoweredCase& of, size_t fused) {
  EXPECT_EQ(ops_of(of, graph::OpKind::kAttention), fused);
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
  EXPECT_EQ(ops_of(of, graph::OpKind::kRearrange), 0u);
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

AddNodes decomposed_attention(Heads h, Written way) {
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
    expect_all(of_nodes({heads, heads, heads}, decomposed_attention(h, way)), 1);
  const Drawn mask{{h.queries, h.keys}};
  expect_all(of_nodes({heads, heads, heads, mask}, decomposed_attention(h, Written::kMasked)), 0);
  EXPECT_EQ(ops_of(of_nodes({heads, heads, heads}, decomposed_attention(h, Written::kDropped)),
                   graph::OpKind::kAttention),
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

// ---- Rows of which the mask hides all are 0, and have no part in any gradient ----

constexpr double kInf = std::numeric_limits<double>::infinity();

// What pairs of queries and keys a mask shows; some queries see nothing.
struct Seen {
  explicit Seen(Heads h) : queries(h.queries), keys(h.keys) {
    for (int64_t i = 0; i < h.batch * h.heads * queries * keys; ++i) {
      const int64_t query = i / keys;
      pairs.push_back(query % 3 != 1 && (i * i + query) % 5 < 3 ? 1 : 0);
    }
  }
  std::vector<double> added(double hidden) const {
    std::vector<double> numbers;
    for (const double seen : pairs) numbers.push_back(seen == 1 ? 0 : hidden);
    return numbers;
  }
  // 1 where a query sees something, behind its diagonal where it is causal.
  std::vector<double> queries_that_see(bool causal) const {
    std::vector<double> see(pairs.size() / static_cast<size_t>(keys), 0);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto query = static_cast<int64_t>(i) / keys, key = static_cast<int64_t>(i) % keys;
      if (pairs[i] == 1 && (!causal || key <= query % queries)) see[static_cast<size_t>(query)] = 1;
    }
    return see;
  }

  int64_t queries, keys;
  std::vector<double> pairs;
};

// Inputs 3 to 5: the file's mask; a mask for the judge, whose softmax has a number in each row;
// what the judge's output is multiplied by.
std::vector<Drawn> hidden_rows(Heads h, bool truth, bool causal) {
  const Seen seen(h);
  const Extents pairs = {h.batch, h.heads, h.queries, h.keys},
                rows = {pairs[0], pairs[1], pairs[2], 1};
  const Drawn mask = truth ? Drawn{pairs, 0, 0, ElementType::kBool, seen.pairs}
                           : Drawn{pairs, 0, 0, ElementType::kDouble, seen.added(-kInf)};
  return {{{h.batch, h.heads, h.queries, h.size}},
          {{h.batch, h.kv_heads, h.keys, h.size}},
          {{h.batch, h.kv_heads, h.keys, h.size}},
          mask,
          {pairs, 0, 0, ElementType::kDouble, seen.added(-1e30)},
          {rows, 0, 0, ElementType::kDouble, seen.queries_that_see(causal)}};
}

AddNodes judge_of_hidden_rows(Heads h, double scale, bool causal) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const int y = attention_in_steps(h, scale, causal, true)(
        builder, {inputs[0], inputs[1], inputs[2], inputs[4]});
    return builder.node("Mul", {y, inputs[5]});
  };
}

TEST(LoweredAttention, RowsThatSeeNothingAreZero) {
  for (const bool truth : {true, false}) {
    for (const bool causal : {true, false}) {
      const Heads h{.keys = 7};
      const AddNodes nodes = [=](FileBuilder& builder, const Inputs& inputs) {
        return builder.node("Attention",
                            {inputs[0], inputs[1], inputs[2], inputs[3]},
                            {{"is_causal", int64_t{causal}}});
      };
      expect_all({hidden_rows(h, truth, causal), nodes, judge_of_hidden_rows(h, kScale, causal)},
                 0);
    }
  }
}

// As exporters of scaled_dot_product_attention write it: with zeros put for NaN; with these, truth
// as the lowest number, and factors of q and k; with these factors alone. Anything else is a
// softmax as ONNX has it.
enum class Ending { kZerosForNan, kLowestAdded, kRootsOfScale, kPlain };

AddNodes written_with_hidden_rows(Ending ending, bool chosen) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const bool roots = ending == Ending::kRootsOfScale || ending == Ending::kLowestAdded;
    const auto times = [&](int x, double factor) {
      return builder.node("Mul", {x, number(builder, factor)});
    };
    int q = inputs[0];
    int k = builder.node("Transpose", {inputs[1]}, {{"perm", Integers{0, 1, 3, 2}}});
    if (roots) q = times(q, 0.5);
    if (roots) k = times(k, 0.5);
    int x = builder.node("MatMul", {q, k});
    if (!roots) x = times(x, 0.25);
    if (ending == Ending::kLowestAdded) {
      const int lowest = number(builder, std::numeric_limits<float>::lowest());
      const int mask = builder.node("Where", {inputs[3], number(builder, 0), lowest});
      x = builder.node("Add", {x, mask});
    } else {
      x = chosen ? builder.node("Where", {inputs[3], x, number(builder, -kInf)})
                 : builder.node("Add", {x, inputs[3]});
    }
    x = builder.node("Softmax", {x}, {{"axis", int64_t{-1}}});
    if (ending == Ending::kZerosForNan || ending == Ending::kLowestAdded)
      x = builder.node("Where", {builder.node("IsNaN", {x}), number(builder, 0), x});
    return builder.node("MatMul", {x, inputs[2]});
  };
}

TEST(LoweredAttention, WrittenRowsThatSeeNothingAreZero) {
  const Heads h{.kv_heads = 4};
  const AddNodes judge = judge_of_hidden_rows(h, 0.25, false);
  for (const bool chosen : {true, false})
    expect_all({hidden_rows(h, chosen, false),
                written_with_hidden_rows(Ending::kZerosForNan, chosen),
                judge},
               0);
  for (const Ending ending : {Ending::kRootsOfScale, Ending::kLowestAdded}) {
    const bool truth = ending == Ending::kLowestAdded;
    expect_all({hidden_rows(h, truth, false), written_with_hidden_rows(ending, false), judge}, 0);
  }
}

TEST(LoweredAttention, RowsOfAPlainSoftmaxThatSeeNothingAreNoNumbers) {
  const Heads h{.kv_heads = 4};
  const LoweredCase of{hidden_rows(h, false, false),
                       written_with_hidden_rows(Ending::kPlain, false),
                       written_with_hidden_rows(Ending::kPlain, false)};
  const Judge judge(of, 1);
  const Network network = judge.network();
  const std::vector<float> y =
      testing::LoweredNetwork(network, 0, graph::Purpose::kInference).output();
  const std::vector<double> see = Seen(h).queries_that_see(false);
  ASSERT_EQ(y.size(), see.size() * static_cast<size_t>(h.size));
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(std::isnan(y[i]), see[i / static_cast<size_t>(h.size)] == 0) << "element " << i;
}

}  // namespace
}  // namespace lockstep::onnx

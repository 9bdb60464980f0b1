// Catches: attention, norms and rotary embeddings of files that compute something else than what ONNX says they
// stand for, in any of their forms, or whose gradient is not the slope; forms that no longer become the ops of
// the house; elements that are moved for nothing.

#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

using Integers = std::vector<int64_t>;
using Inputs = std::vector<int>;
using Attributes = std::map<std::string, Attribute>;

// Of the type that the inputs have.
int number(FileBuilder& builder, double value) {
  static int count = 0;
  return builder.initializer("number" + std::to_string(count++),
                             array_of(builder.file().initializers.front().array.type, {}, {value}));
}

int integers(FileBuilder& builder, const Integers& values) {
  static int count = 0;
  return builder.integers("integers" + std::to_string(count++), values);
}

int reshape(FileBuilder& builder, int x, const Integers& extents) {
  return builder.node("Reshape", {x, integers(builder, extents)});
}

int swap_axes(FileBuilder& builder, int x) {
  return builder.node("Transpose", {x}, {{"perm", Integers{0, 2, 1, 3}}});
}

size_t ops_of(const LoweredCase& of, OpKind kind) {
  const Judge judge(of, 1);
  const Network network = judge.network();
  return testing::LoweredNetwork(network, 0, Purpose::kInference).ops(kind);
}

LoweredCase of_nodes(std::vector<Drawn> inputs, const AddNodes& nodes) {
  return {std::move(inputs), nodes, nodes};
}

// ---- Attention ----

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

// ONNX hides the keys that a mask does not reach, also where it is causal or shows all that it reaches.
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

// As files before opset 23 have it: k is transposed beforehand, v is computed after the first product.
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
  EXPECT_EQ(ops_of(layer, OpKind::kLayerNorm), 1u);
  EXPECT_EQ(ops_of(rms, OpKind::kRmsNorm), 1u);
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
      EXPECT_EQ(ops_of(of, OpKind::kLayerNorm) + ops_of(of, OpKind::kRmsNorm), 0u);
      expect_outputs(of, 1);
      expect_slopes(of);
    }
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

// ---- Fusion ----

void expect_ops(const LoweredCase& of, std::map<OpKind, size_t> counts) {
  for (const auto& [kind, count] : counts) EXPECT_EQ(ops_of(of, kind), count) << name_of(kind);
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
  expect_ops(gelu, {{OpKind::kPointwise, 2}});  // with the test's own
  const LoweredCase silu = of_nodes({{{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
    return builder.node("Mul", {inputs[0], builder.node("Sigmoid", {inputs[0]})});
  });
  expect_ops(silu, {{OpKind::kPointwise, 1}, {OpKind::kActivation, 1}});
}

// The sum is all that the backward pass needs: fused, both of its terms would be kept.
TEST(LoweredChain, KeepsNoMoreForTheBackwardPass) {
  const LoweredCase of =
      of_nodes({{{2, 5}}, {{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
        return builder.node("Relu", {builder.node("Add", inputs)});
      });
  expect_ops(of, {{OpKind::kPointwise, 1}, {OpKind::kAdd, 1}, {OpKind::kActivation, 1}});
}

// A value that others read too is computed once.
TEST(LoweredChain, EndsWhereOthersRead) {
  const LoweredCase of = of_nodes({{{2, 5}}}, [](FileBuilder& builder, const Inputs& inputs) {
    const int y = builder.node("Exp", {inputs[0]});
    return builder.node("Mul", {builder.node("Sin", {y}), builder.node("Cos", {y})});
  });
  expect_ops(of, {{OpKind::kPointwise, 3}});
}

// Products take transposed matrices and the scale behind them.
TEST(LoweredProduct, TakesTransposesAndScales) {
  const LoweredCase of =
      of_nodes({{{2, 3, 4}}, {{2, 5, 4}}}, [](FileBuilder& builder, const Inputs& inputs) {
        const int b = builder.node("Transpose", {inputs[1]}, {{"perm", Integers{0, 2, 1}}});
        return builder.node("Div", {builder.node("MatMul", {inputs[0], b}), number(builder, 2)});
      });
  expect_ops(of, {{OpKind::kPointwise, 1}, {OpKind::kBatchedMatmul, 1}, {OpKind::kRearrange, 0}});
}

// ---- Indices that are computed ----

// Of what `nodes` makes of x and whole numbers that are computed from p; which also scales it, as what has no
// gradient is no parameter.
LoweredCase with_indices(const Extents& x, const Drawn& p, const AddNodes& nodes) {
  return of_nodes({{x}, p}, [=](FileBuilder& builder, const Inputs& inputs) {
    const int indices = builder.node("Cast", {inputs[1]}, {{"to", int64_t{7}}});
    return builder.node(
        "Mul", {nodes(builder, {inputs[0], indices}), builder.node("ReduceSum", {inputs[1]})});
  });
}

AddNodes of_op(const std::string& op, const Attributes& attributes) {
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

// ---- Random draws ----

// As exporters write stochastic depth, or dropout in place: four of five stay, and grow by a quarter.
AddNodes dropped(bool bernoulli) {
  return [=](FileBuilder& builder, const Inputs& inputs) {
    const int share = builder.initializer("share", array_of(ElementType::kFloat, {}, {0.8}));
    int kept = 0;
    if (bernoulli) {
      const int shares = builder.initializer(
          "shares", array_of(ElementType::kFloat, {1000}, std::vector<double>(1000, 0.8)));
      kept = builder.node("Bernoulli", {shares});
    } else {
      kept = builder.node("Less", {builder.node("RandomUniformLike", {inputs[0]}), share});
      kept = builder.node("Cast", {kept}, {{"to", int64_t{1}}});
    }
    return builder.node("Mul", {inputs[0], builder.node("Div", {kept, share})});
  };
}

TEST(LoweredDraw, ThatChoosesElementsIsRefused) {
  const AddNodes chosen = [](FileBuilder& builder, const Inputs& inputs) {
    const int share = builder.initializer("share", array_of(ElementType::kFloat, {}, {0.2}));
    const int zero = builder.initializer("zero", array_of(ElementType::kFloat, {}, {0.0}));
    const int lost = builder.node("Less", {builder.node("RandomUniformLike", {inputs[0]}), share});
    return builder.node("Where", {lost, zero, inputs[0]});
  };
  const LoweredCase of{{{{1000}}}, chosen, chosen};
  const Network network = Judge(of, 1).network();
  EXPECT_THROW(testing::LoweredNetwork(network, 0, Purpose::kInference), ConfigError);
}

TEST(LoweredDraw, DropsItsShareInTrainingAlone) {
  for (const bool bernoulli : {false, true}) {
    const Drawn ones{.extents = {1000}, .low = 1, .high = 1};
    const LoweredCase of{{ones}, dropped(bernoulli), dropped(bernoulli)};
    const Network network = Judge(of, 1).network();
    for (const float y : testing::LoweredNetwork(network, 0, Purpose::kInference).output())
      EXPECT_FLOAT_EQ(y, 1);
    const std::vector<double> gradient =
        testing::LoweredNetwork(network, 0, Purpose::kTraining, std::vector<float>(1000, 0))
            .gradient(0);
    int64_t zeros = 0;
    for (const double g : gradient) {
      zeros += g == 0 ? 1 : 0;
      if (g != 0) {
        EXPECT_NEAR(g, 2 * 1.25 * 1.25 / 1000, 1e-8);  // of the mean of (1.25 x)^2
      }
    }
    EXPECT_NEAR(static_cast<double>(zeros), 200, 60);  // five standard deviations
  }
}

}  // namespace
}  // namespace lockstep::onnx

// Catches: masks of attention that say more or less than the network's mask of tokens, taken for
// it: of another sample, of queries, upside down, with something else beside it; masks of padding
// that exporters write and that are not found; attention whose padding sees or hides something else
// than in the file.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/token_mask.h"
#include "tests/unit/onnx/lowered_case.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kBatch = 2, kTokens = 5;

// A file whose input is a mask of tokens.
struct Masked {
  Masked() {
    builder.initializer("first", array_of(ElementType::kFloat, {1}, {0}));  // the type of numbers
    mask = builder.input("mask", {{kBatch}, {kTokens}}, ElementType::kInt64);
  }

  MaskForm form_of(int value, bool true_hides = false) {
    builder.file().outputs = {value};
    Classes classes;
    classes.parameter.resize(builder.file().values.size(), false);
    const Network network = bind(builder.file(), classes, {.batch = kBatch});
    TokenMasks masks(network, {mask});
    return masks.form_of(value, true_hides);
  }
  int unsqueezed(int x, const Integers& axes) {
    return builder.node("Unsqueeze", {x, integers(builder, axes)});
  }
  int cast(int x, int64_t type) { return builder.node("Cast", {x}, {{"to", type}}); }
  int truth() { return cast(mask, 9); }
  // (1 - mask) times so much, of the keys.
  int added(double times) {
    const int x = builder.node("Sub", {number(builder, 1), cast(unsqueezed(mask, {1, 2}), 1)});
    return builder.node("Mul", {x, number(builder, times)});
  }
  // Seen tokens (N, 1, T, T), by the pairs of samples and keys that the nodes count.
  int gathered(int from) {
    std::vector<int64_t> pairs;
    for (int64_t n = 0; n < kBatch; ++n)
      for (int64_t k = 0; k < kTokens; ++k) pairs.insert(pairs.end(), {n, k});
    const int numbers =
        builder.initializer("pairs", array_of_int64({kBatch, 1, 1, kTokens, 2}, pairs));
    return builder.node("Expand",
                        {builder.node("GatherND", {from, numbers}),
                         integers(builder, {kBatch, 1, kTokens, kTokens})});
  }
  int triangle() {
    std::vector<double> seen;
    for (int64_t i = 0; i < kTokens * kTokens; ++i) seen.push_back(i % kTokens <= i / kTokens);
    return builder.initializer("triangle", array_of(ElementType::kBool, {kTokens, kTokens}, seen));
  }

  FileBuilder builder;
  int mask = -1;
};

void expect(const MaskForm& form, bool known, bool causal, bool padding) {
  EXPECT_EQ(form.known, known);
  EXPECT_EQ(form.causal, causal);
  EXPECT_EQ(form.padding, padding);
}

TEST(TokenMask, OfPaddingIsFound) {
  for (const double times : {-3.4028234663852886e38, -1e4}) {
    Masked added;
    expect(added.form_of(added.added(times)), true, false, true);
  }
  Masked truth;
  expect(truth.form_of(truth.unsqueezed(truth.truth(), {1, 2})), true, false, true);
  Masked gathered;
  expect(gathered.form_of(gathered.gathered(gathered.truth())), true, false, true);
  Masked hidden;
  const int zero = hidden.builder.node("Equal", {hidden.mask, integers(hidden.builder, {0})});
  expect(hidden.form_of(hidden.unsqueezed(zero, {1, 2}), true), true, false, true);
}

TEST(TokenMask, MayBeCausalToo) {
  Masked both;
  const int x = both.builder.node("And", {both.gathered(both.truth()), both.triangle()});
  expect(both.form_of(x), true, true, true);
  Masked alone;
  expect(alone.form_of(alone.triangle()), true, true, false);
}

TEST(TokenMask, OfSomethingElseIsNone) {
  Masked queries;
  expect(queries.form_of(queries.unsqueezed(queries.truth(), {1, 3})), false, false, false);
  Masked upside_down;
  expect(upside_down.form_of(upside_down.unsqueezed(upside_down.truth(), {1, 2}), true),
         false,
         false,
         false);
  Masked small;
  expect(small.form_of(small.added(-10)), false, false, false);
  Masked added;
  expect(added.form_of(added.builder.node("Add", {added.added(-1e9), number(added.builder, 1)})),
         false,
         false,
         false);
  Masked other_samples;
  const int swapped = other_samples.builder.node(
      "Gather", {other_samples.truth(), integers(other_samples.builder, {1, 0})});
  expect(other_samples.form_of(other_samples.unsqueezed(swapped, {1, 2})), false, false, false);
  Masked pairs;  // of which both have to be tokens
  const int square = pairs.builder.node(
      "And", {pairs.unsqueezed(pairs.truth(), {1, 2}), pairs.unsqueezed(pairs.truth(), {1, 3})});
  expect(pairs.form_of(square), false, false, false);
}

// Of padded tokens, too, the result and the gradients are those of the nodes: `documents` says
// which they are.
TEST(TokenMask, BecomesTheOpsMask) {
  const std::vector<int32_t> documents = {0, 0, 0, -1, -1, 0, 0, 0, 0, -1};
  std::vector<double> seen;
  for (const int32_t document : documents) seen.push_back(document < 0 ? 0 : 1);
  const Extents heads = {kBatch, 3, kTokens, 4};
  enum class Way { kNode, kAdded, kChosen, kGuarded };
  for (const Way way : {Way::kNode, Way::kAdded, Way::kChosen, Way::kGuarded}) {
    std::vector<std::vector<float>> outputs;
    std::vector<std::vector<double>> gradients;
    for (const bool known : {true, false}) {
      Masked net;
      FileBuilder& builder = net.builder;
      std::vector<int> parts;
      for (const std::string name : {"q", "k", "v"}) {
        std::vector<double> numbers;
        for (int64_t i = 0; i < elements(heads); ++i)
          numbers.push_back(std::sin(static_cast<double>(7 * i + name[0])));
        parts.push_back(builder.initializer(name, array_of(ElementType::kFloat, heads, numbers)));
      }
      int y = -1;
      if (way == Way::kNode) {
        const int mask = net.unsqueezed(net.truth(), {1, 2});
        y = builder.node("Attention", {parts[0], parts[1], parts[2], mask});
      } else {
        const int k = builder.node("Transpose", {parts[1]}, {{"perm", Integers{0, 1, 3, 2}}});
        int x = builder.node("Mul", {builder.node("MatMul", {parts[0], k}), number(builder, 0.5)});
        if (way == Way::kChosen) {
          const int zero = builder.node("Equal", {net.mask, integers(builder, {0})});
          x = builder.node("Where", {net.unsqueezed(zero, {1, 2}), number(builder, -1e9), x});
        } else {
          x = builder.node("Add", {x, net.added(-1e9)});
        }
        x = builder.node("Softmax", {x}, {{"axis", int64_t{-1}}});
        if (way == Way::kGuarded)
          x = builder.node("Where", {builder.node("IsNaN", {x}), number(builder, 0), x});
        y = builder.node("MatMul", {x, parts[2]});
      }
      builder.output(y);
      Classes classes;
      classes.parameter.resize(builder.file().values.size(), false);
      for (const int part : parts) classes.parameter[static_cast<size_t>(part)] = true;
      BindOptions options{.batch = kBatch};
      if (known) options.known["mask"] = array_of(ElementType::kInt64, {kBatch, kTokens}, seen);
      const Network network = bind(builder.file(), classes, options);
      const std::vector<int32_t> of_inputs = known ? std::vector<int32_t>{} : documents;
      const testing::LoweredNetwork lowered(network, 0, graph::Purpose::kInference, {}, of_inputs);
      EXPECT_EQ(lowered.ops(graph::OpKind::kAttention), known ? 0u : 1u);
      EXPECT_EQ(lowered.ops(graph::OpKind::kSoftmax), known ? 1u : 0u);
      outputs.push_back(lowered.output());
      const std::vector<float> target(static_cast<size_t>(elements(heads)), 0.25f);
      const testing::LoweredNetwork trained(
          network, 0, graph::Purpose::kTraining, target, of_inputs);
      gradients.emplace_back();
      for (const int part : parts)
        for (const double slope : trained.gradient(part)) gradients.back().push_back(slope);
    }
    for (size_t i = 0; i < outputs[0].size(); ++i) EXPECT_NEAR(outputs[0][i], outputs[1][i], 1e-6);
    ASSERT_EQ(gradients[0].size(), 3 * static_cast<size_t>(elements(heads)));
    for (size_t i = 0; i < gradients[0].size(); ++i)
      EXPECT_NEAR(gradients[0][i], gradients[1][i], 1e-7);
  }
}

// As RoBERTa counts its tokens: of 5 the last one has position 5.
TEST(TokenMask, PositionsBeyondTheirTableAreRefused) {
  for (const int64_t rows : {5, 6}) {
    Masked net;
    const int axis = net.builder.initializer("axis", array_of_int64({}, {1}));
    const int sums = net.builder.node("CumSum", {net.mask, axis});
    const int table = net.builder.floats("table", {rows, 3});
    net.builder.output(
        net.builder.node("Gather", {table, net.builder.node("Mul", {sums, net.mask})}));
    Classes classes;
    classes.parameter.resize(net.builder.file().values.size(), false);
    classes.parameter[static_cast<size_t>(table)] = true;
    const Network network = bind(net.builder.file(), classes, {.batch = kBatch});
    const auto lower = [&] {
      return testing::LoweredNetwork(
          network, 0, graph::Purpose::kInference, {}, {0, 0, 0, 0, 0, 0, 0, 0, -1, -1});
    };
    if (rows == 5) {
      EXPECT_THROW(lower(), ConfigError);
    } else {
      const std::vector<float> y = lower().output();
      EXPECT_EQ(y[3 * 4], 0.5f + static_cast<float>(3 * 5 % 7));
      EXPECT_EQ(y[3 * 9], 0.5f);
    }
  }
}

}  // namespace
}  // namespace lockstep::onnx

// bind(): axes of inputs, what is folded and dropped, what is refused and how.

#include <gtest/gtest.h>

#include <limits>

#include "models/onnx/network.h"
#include "runtime/base/error.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

const OpenExtent kBatch = {-1, "batch"};

Network bound(FileBuilder& builder, BindOptions options = {}) {
  return bind(builder.file(), classify(builder.file()), options);
}

Extents output_extents(const Network& network, size_t place = 0) {
  return network.values[static_cast<size_t>(network.outputs[place])].extents;
}

// The message with which binding is refused.
std::string refusal(FileBuilder& builder, const BindOptions& options = {}) {
  try {
    bound(builder, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

void expect_refusal(FileBuilder& builder,
                    const std::vector<std::string>& parts,
                    const BindOptions& options = {}) {
  const std::string message = refusal(builder, options);
  EXPECT_EQ(message.find("net.onnx: "), 0u) << message;
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

// A linear layer over a batch of images that Flatten makes rows of.
void add_mlp(FileBuilder& b, const OpenExtent& batch) {
  const int x = b.input("x", {batch, {1}, {4}, {5}});
  const int rows = b.node("Flatten", {x});
  const int weight = b.floats("fc.weight", {3, 20});
  const int turned = b.node("Transpose", {weight}, {{"perm", std::vector<int64_t>{1, 0}}});
  const int product = b.node("MatMul", {rows, turned});
  b.output(b.node("Add", {product, b.floats("fc.bias", {3})}));
}

TEST(OnnxBind, ExtentsFollowFromTheBatch) {
  FileBuilder b;
  add_mlp(b, kBatch);
  const Network network = bound(b, {.batch = 7});
  EXPECT_EQ(output_extents(network), (Extents{7, 3}));
  // The weight learns, so its transpose is no constant.
  EXPECT_EQ(network.nodes.size(), 4u);
}

TEST(OnnxBind, WithoutParametersTheirTransposeFolds) {
  FileBuilder b;
  add_mlp(b, kBatch);
  BindOptions options;
  options.all_constant = true;
  const Network network = bound(b, options);
  ASSERT_EQ(network.nodes.size(), 3u);
  const Value& turned = network.values[static_cast<size_t>(network.nodes[1].inputs[1])];
  EXPECT_EQ(turned.kind, ValueKind::kConstant);
  EXPECT_EQ(turned.extents, (Extents{20, 3}));
  EXPECT_EQ(turned.array.as<float>()[1], b.file().initializers[0].array.as<float>()[20]);
}

TEST(OnnxBind, FixedBatchIsRefusedWithTheExportThatLeavesItOpen) {
  FileBuilder b;
  add_mlp(b, {1, ""});
  expect_refusal(b,
                 {"a lane has 4 samples, but input \"x\" has a fixed batch of 1",
                  "train.lanes = train.global_batch (one sample a lane)",
                  "input_names=['x'], dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)"},
                 {.batch = 4});
  EXPECT_EQ(output_extents(bound(b)), (Extents{1, 3}));
}

TEST(OnnxBind, NamesBindWhereverTheyStand) {
  FileBuilder b;
  const int tokens = b.input("tokens", {kBatch, {-1, "length"}});
  const int more = b.input("more", {kBatch, {-1, "length"}});
  b.output(b.node("Add", {tokens, more}));
  expect_refusal(b, {"axis 1 of input \"tokens\"", "named length", "set its extent"});
  EXPECT_EQ(output_extents(bound(b, {.batch = 2, .axes = {{"length", 9}}})), (Extents{2, 9}));
  // The extents of one input bind the names of the other.
  EXPECT_EQ(output_extents(bound(b, {.batch = 2, .inputs = {{"tokens", {2, 5}}}})),
            (Extents{2, 5}));
  expect_refusal(b, {"axis named width", "batch, length"}, {.axes = {{"width", 1}}});
  expect_refusal(
      b, {"\"more\"", "length", "must have 5"}, {.inputs = {{"tokens", {2, 5}}, {"more", {2, 6}}}});
  expect_refusal(b, {"no input is named z"}, {.inputs = {{"z", {2, 5}}}});
}

TEST(OnnxBind, AxesWithoutNamesGoByTheirPlace) {
  FileBuilder b;
  b.output(b.node("Relu", {b.input("x", {{-1, ""}, {-1, ""}})}));
  expect_refusal(b, {"axis 1 of input \"x\"", "x.1"});
  EXPECT_EQ(output_extents(bound(b, {.batch = 3, .axes = {{"x.1", 4}}})), (Extents{3, 4}));
}

TEST(OnnxBind, BatchMayBeAnotherAxis) {
  FileBuilder b;
  b.output(b.node("Relu", {b.input("x", {{6}, {-1, "n"}})}));
  EXPECT_EQ(output_extents(bound(b, {.batch = 3, .batch_axis = "n"})), (Extents{6, 3}));
  expect_refusal(b, {"axis named m"}, {.batch = 3, .batch_axis = "m"});
}

// x.view(x.shape[0], -1), as exporters write it.
TEST(OnnxBind, ShapesOfComputedValuesAreConstants) {
  FileBuilder b;
  const int x = b.node("Relu", {b.input("x", {kBatch, {3}, {4}})});
  const int shape = b.node("Shape", {x});
  const int first = b.node("Gather", {shape, b.integers("zero", {0})});
  const int wanted = b.node("Concat", {first, b.integers("rest", {-1})}, {{"axis", int64_t{0}}});
  b.output(b.node("Reshape", {x, wanted}));
  const Network network = bound(b, {.batch = 5});
  EXPECT_EQ(output_extents(network), (Extents{5, 12}));
  EXPECT_EQ(network.nodes.size(), 2u);
}

TEST(OnnxBind, WhatNoOutputNeedsIsDropped) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  b.node("Sigmoid", {x});
  b.output(b.node("Tanh", {x}));
  const Network network = bound(b);
  ASSERT_EQ(network.nodes.size(), 1u);
  EXPECT_EQ(network.nodes[0].op, "Tanh");
}

TEST(OnnxBind, DropoutStaysAndKeepsItsInputs) {
  FileBuilder b;
  const int ratio = b.initializer("ratio", array_of(ElementType::kFloat, {}, {0.25}));
  const int training = b.initializer("training", array_of(ElementType::kBool, {}, {1}));
  b.output(b.node("Dropout", {b.input("x", {kBatch, {4}}), ratio, training}));
  const Network network = bound(b, {.batch = 2});
  ASSERT_EQ(network.nodes.size(), 1u);
  EXPECT_EQ(network.values[static_cast<size_t>(network.nodes[0].inputs[1])].array.as_float()[0],
            0.25f);
  EXPECT_EQ(network.values[static_cast<size_t>(network.nodes[0].inputs[2])].array.as_int64()[0], 1);
}

TEST(OnnxBind, SequencesThatAreKnownLeaveSplits) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {6}});
  const int parts =
      b.node("SplitToSequence", {x, b.integers("parts", {2, 4})}, {{"axis", int64_t{1}}});
  const int one = b.initializer("one", array_of_int64({}, {1}));
  b.output(b.node("Relu", {b.node("SequenceAt", {parts, one})}));
  const Network network = bound(b, {.batch = 3});
  EXPECT_EQ(output_extents(network), (Extents{3, 4}));
  EXPECT_EQ(network.nodes[0].op, "Split");
}

// As PyTorch's exporter writes attention with dropout.
TEST(OnnxBind, MasksOfTruthValuesAreAddedAsInfinities) {
  FileBuilder b;
  const int scores = b.input("scores", {kBatch, {3}});
  const int mask = b.initializer("mask", array_of(ElementType::kBool, {3}, {1, 0, 1}));
  const int sum = b.node("Add", {scores, mask});
  b.output(b.node("Softmax", {sum}));
  const Network network = bound(b);
  ASSERT_EQ(network.nodes.size(), 2u);
  const Array& added = network.values[static_cast<size_t>(network.nodes[0].inputs[1])].array;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(added.as_float(), (std::vector<float>{0, -infinity, 0}));
  // Where something else reads the sum it is no mask.
  b.output(b.node("Relu", {sum}));
  expect_refusal(b, {"float and bool"});
}

TEST(OnnxBind, RefusesByNameWhatItDoesNotKnow) {
  const auto refused =
      [](const std::string& op, const std::string& domain, const std::vector<std::string>& parts) {
        FileBuilder b;
        b.output(b.node(op, {b.input("x", {kBatch, {4}})}));
        b.file().nodes[0].domain = domain;
        expect_refusal(b, parts);
      };
  refused("If", "", {"node If \"If_0\"", "static control flow"});
  refused("QuantizeLinear", "", {"QuantizeLinear", "before it is quantized"});
  refused("Blur", "", {"node Blur", "not supported"});
  refused("Relu", "com.example", {"com.example"});
  refused("Unique", "", {"depend on data"});
  refused("NonZero", "", {"depends on data"});
}

TEST(OnnxBind, RefusesWhatDoesNotGoWithAttention) {
  const auto attention = [](const std::vector<Extents>& extents) {
    FileBuilder b;
    std::vector<int> inputs;
    for (const Extents& e : extents) {
      std::vector<OpenExtent> own;
      for (const int64_t extent : e) own.push_back({extent});
      own[0] = kBatch;
      inputs.push_back(
          e == Extents{0} ? -1 : b.input("x" + std::to_string(inputs.size()), std::move(own)));
    }
    b.output(b.node(extents[0][1] == 4 ? "Attention" : "RotaryEmbedding", inputs));
    return refusal(b, {.batch = 2});
  };
  const Extents x = {2, 4, 5, 6}, none = {0}, past = {2, 4, 3, 6};
  EXPECT_EQ(attention({x, x, x, {2, 1, 5, 5}}), "nothing");
  EXPECT_EQ(attention({x, x, x, none, past, past}), "nothing");
  EXPECT_NE(attention({x, x, x, {2, 1, 4, 5}}).find("its mask has extents (2, 1, 4, 5)"),
            std::string::npos);
  EXPECT_NE(attention({x, x, x, {2, 3, 5, 5}}).find("its mask has extents"), std::string::npos);
  EXPECT_NE(attention({x, x, x, {2, 1, 1, 6}}).find("its mask has extents"), std::string::npos);
  EXPECT_NE(attention({x, x, x, none, past}).find("must have both or none"), std::string::npos);
  EXPECT_NE(attention({x, x, x, none, past, {2, 4, 2, 6}}).find("must have (2, 4, 3, 6)"),
            std::string::npos);
  const Extents heads = {2, 3, 5, 6};
  EXPECT_EQ(attention({heads, {2, 5, 3}, {2, 5, 3}}), "nothing");
  EXPECT_NE(attention({heads, {2, 4, 3}, {2, 4, 3}}).find("must have (2, 5, 3)"),
            std::string::npos);
}

TEST(OnnxBind, RefusesExtentsThatDependOnData) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int shape =
      b.node("Cast", {b.node("ReduceSum", {x}, {{"keepdims", int64_t{1}}})}, {{"to", int64_t{7}}});
  b.output(b.node("Reshape", {x, b.node("Flatten", {shape})}));
  expect_refusal(b, {"Reshape", "must"});
}

TEST(OnnxBind, RefusesWhatWouldDivideByZeroOrIndexOutside) {
  const auto refused =
      [](const std::string& op, int64_t first, int64_t second, const std::string& part) {
        FileBuilder b;
        const int a = b.integers("a", {first, first});
        b.output(b.node(op, {a, b.integers("b", {second})}));
        expect_refusal(b, {op, part});
      };
  refused("Div", 4, 0, "divided by 0");
  refused("Mod", 4, 0, "divided by 0");
  refused("Gather", 4, 2, "index 2");
  refused("Gather", 4, -3, "index -3");
  refused("Expand", 4, int64_t{1} << 60, "2^46");
  refused("Tile", 4, int64_t{1} << 40, "256 MB");
}

TEST(OnnxBind, RefusesKnownIndicesOutsideOfWhatIsComputed) {
  const auto refused = [](const std::string& op, const Extents& extents, const std::string& part) {
    FileBuilder b;
    const int x = b.input("x", {{-1, "batch"}, {4}});
    const int indices = b.initializer(
        "i",
        array_of_int64(extents, std::vector<int64_t>(static_cast<size_t>(elements(extents)), 4)));
    b.output(b.node(op, {x, indices}, {{"axis", int64_t{1}}}));
    expect_refusal(b, {op, part});
  };
  refused("Gather", {2}, "index 4 of an axis of extent 4; must be within -4 and 3");
  refused("GatherElements", {1, 2}, "index 4");
  refused("GatherND", {1, 2}, "index 4");
}

// Each is small enough by itself.
TEST(OnnxBind, RefusesToFoldMoreThanMemoryHolds) {
  FileBuilder b;
  const int extents = b.integers("extents", {1 << 18});
  for (int i = 0; i < 5; ++i) b.output(b.node("ConstantOfShape", {extents}));
  bound(b, {.max_folded_bytes = 5 << 20});
  expect_refusal(b, {"ConstantOfShape", "4 MB"}, {.max_folded_bytes = 4 << 20});
}

// A module that calls a norm twice has one pair of statistics, and the file a copy of it.
TEST(OnnxBind, RefusesCopiesOfStatistics) {
  FileBuilder b;
  const int scale = b.floats("bn.weight", {4}), shift = b.floats("bn.bias", {4});
  const int mean = b.floats("bn.running_mean", {4}), variance = b.floats("bn.running_var", {4});
  const int first =
      b.node("BatchNormalization", {b.input("x", {kBatch, {4}}), scale, shift, mean, variance});
  b.output(
      b.node("BatchNormalization",
             {first, scale, shift, b.node("Identity", {mean}), b.node("Identity", {variance})}));
  expect_refusal(b, {"BatchNormalization", "statistic", "twice", "RUNNING"});
  EXPECT_EQ(refusal(b, {.running_norms = true}), "nothing");
}

TEST(OnnxBind, RandomNumbersAreFloatingPoint) {
  FileBuilder b;
  b.output(
      b.node("RandomUniform", {}, {{"shape", std::vector<int64_t>{2}}, {"dtype", int64_t{7}}}));
  expect_refusal(b, {"RandomUniform", "int64", "must be floating-point"});
}

TEST(OnnxBind, IntegersWrapAndTruncate) {
  const auto result = [](const std::string& op, int64_t first, int64_t second) {
    FileBuilder b;
    b.output(b.node(op, {b.integers("a", {first}), b.integers("b", {second})}));
    const Network network = bound(b);
    return network.values[static_cast<size_t>(network.outputs[0])].array.as_int64()[0];
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(result("Div", -7, 2), -3);
  EXPECT_EQ(result("Div", kLeast, -1), kLeast);
  EXPECT_EQ(result("Mod", -7, 2), 1);
  EXPECT_EQ(result("Mod", 7, -2), -1);
  EXPECT_EQ(result("Add", kLeast, -1), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(result("Pow", 3, 4), 81);
}

}  // namespace
}  // namespace lockstep::onnx

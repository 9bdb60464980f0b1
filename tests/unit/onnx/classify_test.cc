// classify(): which initializers may learn, and which are the exporter's.

#include <gtest/gtest.h>

#include <limits>

#include "models/onnx/network.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

const OpenExtent kBatch = {-1, "batch"};

bool learns(FileBuilder& builder, int value) {
  return classify(builder.file()).parameter[static_cast<size_t>(value)];
}

TEST(OnnxClassify, WeightsAndBiasesOfLayersLearn) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {3}, {8}, {8}});
  const int weight = b.floats("onnx::Conv_12", {4, 3, 3, 3});
  const int bias = b.floats("conv.bias", {4});
  const int image = b.node("Conv", {x, weight, bias});
  const int scale = b.floats("bn.weight", {4});
  const int shift = b.floats("bn.bias", {4});
  const int mean = b.floats("bn.running_mean", {4});
  const int variance = b.floats("bn.running_var", {4});
  b.output(b.node("BatchNormalization", {image, scale, shift, mean, variance}));
  for (const int value : {weight, bias, scale, shift}) EXPECT_TRUE(learns(b, value)) << value;
  for (const int value : {mean, variance}) EXPECT_FALSE(learns(b, value)) << value;
}

TEST(OnnxClassify, MovedWeightsLearn) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int first = b.floats("q.weight", {4, 4});
  const int second = b.floats("k.weight", {4, 4});
  const int both = b.node("Concat", {first, second}, {{"axis", int64_t{0}}});
  b.output(b.node("MatMul", {x, b.node("Transpose", {both})}));
  EXPECT_TRUE(learns(b, first));
  EXPECT_TRUE(learns(b, second));
}

// 2^60 ways lead to the bias: one look at each value is enough.
TEST(OnnxClassify, AValueThatManyWaysLeadToIsLookedAtOnce) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int bias = b.floats("layer.bias", {1, 4});
  const int start = b.integers("start", {0}), end = b.integers("end", {1});
  int last = bias;
  for (int i = 0; i < 60; ++i) {
    const int twice = b.node("Concat", {last, last}, {{"axis", int64_t{0}}});
    last = b.node("Slice", {twice, start, end});
  }
  b.output(b.node("Add", {x, last}));
  EXPECT_TRUE(learns(b, bias));
}

TEST(OnnxClassify, AWeightLearnsBehindChainsThatAreDeeperThanTheStack) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int weight = b.floats("layer.weight", {4, 4});
  int last = weight;
  for (int i = 0; i < 200'000; ++i) last = b.node("Identity", {last});
  b.output(b.node("MatMul", {x, last}));
  EXPECT_TRUE(learns(b, weight));
}

// Rotary tables: a product of constants alone, which is no layer.
TEST(OnnxClassify, WhatOnlyConstantsReachDoesNotLearn) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int frequencies = b.floats("rotary.inv_freq", {1, 4});
  const int places = b.floats("places", {1, 1});
  const int cosines = b.node("Cos", {b.node("MatMul", {places, frequencies})});
  b.output(b.node("Mul", {x, cosines}));
  EXPECT_FALSE(learns(b, frequencies));
  EXPECT_FALSE(learns(b, places));
}

TEST(OnnxClassify, OperandsLearnUnlessTheExporterMadeThem) {
  FileBuilder b;
  int x = b.input("x", {kBatch, {3}});
  const int bias = b.floats("layer.bias", {3});
  const int numbered = b.floats("onnx::Add_12", {3});
  const int gain = b.floats("layer.gain", {1});
  const int invented = b.floats("val_12", {3});
  const int older = b.floats("_val_3", {3});
  const int folded = b.floats("/layer/Constant_output_0", {3});
  const int number = b.floats("onnx::Mul_7", {1});
  const double forgotten = -std::numeric_limits<double>::infinity();
  const int mask = b.initializer("mask", array_of(ElementType::kFloat, {3}, {0, forgotten, -1e9}));
  const int zeros = b.initializer("head.bias", array_of(ElementType::kFloat, {3}, {0, 0, 0}));
  for (const int operand : {bias, numbered, gain, invented, older, folded, number, mask, zeros})
    x = b.node("Add", {x, operand});
  const int power = b.floats("power", {3});
  b.output(b.node("Pow", {x, power}));
  for (const int value : {bias, numbered, gain, zeros})
    EXPECT_TRUE(learns(b, value)) << b.file().values[static_cast<size_t>(value)].name;
  for (const int value : {invented, older, folded, number, mask, power})
    EXPECT_FALSE(learns(b, value)) << b.file().values[static_cast<size_t>(value)].name;
}

TEST(OnnxClassify, TablesLearnAndVectorsThatAreLookedUpDoNot) {
  FileBuilder b;
  const int ids = b.input("ids", {kBatch, {3}}, ElementType::kInt64);
  const int table = b.floats("embedding.weight", {10, 4});
  const int vector = b.floats("schedule", {10});
  b.output(b.node("Gather", {table, ids}));
  b.output(b.node("Gather", {vector, ids}));
  EXPECT_TRUE(learns(b, table));
  EXPECT_FALSE(learns(b, vector));
}

// Files of older exporters have weights in Constant nodes; PyTorch's has gains there that no module
// has.
TEST(OnnxClassify, ConstantsLearnInThePlaceOfWeightsAlone) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}, {3}});
  const auto constant = [&](const Extents& extents) {
    const int value = b.floats("/layer/Constant_1_output_0", extents);
    FileValue& v = b.file().values[static_cast<size_t>(value)];
    v.constant = b.file().initializers[static_cast<size_t>(v.initializer)].array;
    v.initializer = -1;
    return value;
  };
  const int gain = constant({4});
  const int bias = constant({4});
  const int normalized = b.node("InstanceNormalization", {x, gain, bias});
  const int weight = constant({3, 2});
  b.output(b.node("MatMul", {normalized, weight}));
  EXPECT_TRUE(learns(b, weight));
  EXPECT_FALSE(learns(b, gain));
  EXPECT_FALSE(learns(b, bias));
  const Network network = bind(b.file(), classify(b.file()), {});
  EXPECT_EQ(network.values[static_cast<size_t>(weight)].kind, ValueKind::kParameter);
  EXPECT_EQ(network.values[static_cast<size_t>(weight)].initializer, -1);
}

// PaddlePaddle has all its weights in Constant nodes, under their names, and so has what converts
// its files.
TEST(OnnxClassify, NamedConstantsOfOtherExportersLearn) {
  for (const char* producer : {"PaddlePaddle", "", "pytorch 2.3.1"}) {
    FileBuilder b;
    b.file().producer = producer;
    const auto constant = [&](const std::string& name, const Extents& extents) {
      const int value = b.floats(name, extents);
      FileValue& v = b.file().values[static_cast<size_t>(value)];
      v.constant = b.file().initializers[static_cast<size_t>(v.initializer)].array;
      v.initializer = -1;
      return value;
    };
    int x = b.input("x", {kBatch, {4}, {3}});
    const int gain = constant("conv1_bn_scale", {4}), bias = constant("conv1_bn_offset", {4});
    x = b.node("InstanceNormalization", {x, gain, bias});
    const int scale = constant("whswish_b_1.w_0", {1}), shift = constant("fc_0.b_0", {3});
    const int three = constant("Constant@1", {}), six = constant("p2o.helper.constant.7", {1}),
              share = constant("share", {});
    for (const int operand : {scale, shift, three, six, share}) x = b.node("Add", {x, operand});
    b.output(x);
    const bool by_pytorch = std::string(producer).starts_with("pytorch");
    for (const int value : {gain, bias, scale, shift})
      EXPECT_EQ(learns(b, value), !by_pytorch) << producer << " " << value;
    for (const int value : {three, six, share})
      EXPECT_FALSE(learns(b, value)) << producer << " " << value;
  }
}

TEST(OnnxClassify, NumbersOfTheArithmeticOfTensorFlowDoNotLearn) {
  FileBuilder b;
  int x = b.input("x", {kBatch, {3}});
  std::vector<int> numbers, weights;
  for (const char* name :
       {"jax2tf_get_logits_/Const_2:0", "model/log/add/y:0", "a/LayerNorm_1/truediv_recip:0"})
    numbers.push_back(b.floats(name, {}));
  numbers.push_back(b.floats("const_fold_opt__211", {1, 1}));
  weights.push_back(b.floats("const_fold_opt__209", {1, 3}));
  weights.push_back(b.floats("model/batch_normalization/FusedBatchNormV3", {1}));
  weights.push_back(b.floats("model/scale/ReadVariableOp:0", {}));
  weights.push_back(b.floats("logit_scale", {}));
  for (const auto& values : {numbers, weights})
    for (const int value : values) x = b.node("Mul", {x, value});
  b.output(x);
  for (const int value : numbers) EXPECT_FALSE(learns(b, value)) << value;
  for (const int value : weights) EXPECT_TRUE(learns(b, value)) << value;
}

// CLIP's temperature is learned as its logarithm; frequencies are no parameters.
TEST(OnnxClassify, FunctionsOfAParameterStandForIt) {
  FileBuilder b;
  int x = b.input("x", {kBatch, {3}});
  const int scale = b.floats("logit_scale", {}), decay = b.floats("decay_log", {3}),
            frequencies = b.floats("inv_freq", {3}), folded = b.floats("val_3", {3});
  x = b.node("Mul", {x, b.node("Exp", {scale})});
  x = b.node("Mul", {x, b.node("Neg", {b.node("Exp", {decay})})});
  x = b.node("Mul", {x, b.node("Cos", {frequencies})});
  b.output(b.node("Mul", {x, b.node("Exp", {folded})}));
  for (const int value : {scale, decay}) EXPECT_TRUE(learns(b, value)) << value;
  for (const int value : {frequencies, folded}) EXPECT_FALSE(learns(b, value)) << value;
}

// The tables of a rotary embedding, and rows of a table of positions, as the exporter's optimizer
// leaves them.
TEST(OnnxClassify, FoldedOperationsDoNotLearnButRowsOfTablesDo) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int cosines = b.floats("unsqueeze_14", {4});
  const int positions = b.floats("embedding_2", {1, 4});
  b.output(b.node("Add", {b.node("Mul", {x, cosines}), positions}));
  EXPECT_FALSE(learns(b, cosines));
  EXPECT_TRUE(learns(b, positions));
}

// Positions are constants: their rows are a constant part of the table, which learns all the same.
TEST(OnnxClassify, TablesOfPositionsLearn) {
  FileBuilder b;
  const int ids = b.input("ids", {kBatch, {3}}, ElementType::kInt64);
  const int words = b.node("Gather", {b.floats("words", {10, 4}), ids});
  const int table = b.floats("positions", {8, 4});
  b.output(b.node("Add", {words, b.node("Gather", {table, b.integers("val_0", {0, 1, 2})})}));
  EXPECT_TRUE(learns(b, table));
}

TEST(OnnxClassify, NamesInitializersThatTheExporterMerged) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {4}});
  const int bias = b.floats("first.bias", {4});
  const int own = b.floats("third.bias", {4});
  const int one = b.node("Add", {x, bias});
  const int two = b.node("Add", {b.node("Relu", {one}), bias});
  b.output(b.node("Add", {b.node("Relu", {two}), own}));
  const std::vector<MergedInitializer> merged = merged_initializers(b.file(), classify(b.file()));
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged[0].name, "first.bias");
  ASSERT_EQ(merged[0].nodes.size(), 2u);
  EXPECT_NE(merged[0].nodes[1].find("Add_2"), std::string::npos);
}

// Rounded, compared, or only counted: no gradient comes back.
TEST(Classify, WhatHasNoGradientIsConstant) {
  FileBuilder builder;
  const int x = builder.input("x", {{2}, {3}});
  const int learns = builder.floats("learns", {3}), rounded = builder.floats("rounded", {3}),
            compared = builder.floats("compared", {3}), cast = builder.floats("cast", {3});
  const int round = builder.node("Round", {builder.node("Add", {x, rounded})});
  const int less = builder.node("Less", {builder.node("Mul", {x, compared}), x});
  const int whole = builder.node("Cast", {builder.node("Add", {x, cast})}, {{"to", int64_t{7}}});
  const int back = builder.node("Cast", {whole}, {{"to", int64_t{1}}});
  int y = builder.node("Where", {less, builder.node("Mul", {x, learns}), round});
  y = builder.node("Add", {y, back});
  builder.output(y);
  const Classes classes = classify(builder.file());
  EXPECT_TRUE(classes.parameter[static_cast<size_t>(learns)]);
  for (const int constant : {rounded, compared, cast})
    EXPECT_FALSE(classes.parameter[static_cast<size_t>(constant)])
        << builder.file().values[static_cast<size_t>(constant)].name;
}

}  // namespace
}  // namespace lockstep::onnx

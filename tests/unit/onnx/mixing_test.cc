// mixing_node(): networks in which samples of a batch mix, and the node that is named; and usual
// ones, in which the batch's axis is folded, moved and indexed without mixing.

#include <gtest/gtest.h>

#include <functional>

#include "models/onnx/network.h"
#include "models/onnx/samples/mixing.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

const OpenExtent kBatch = {-1, "batch"};
constexpr int64_t kFeatures = 8;

using Body = std::function<int(FileBuilder&, int x)>;

// Named "" if the samples stay apart. `output`: what is wanted of the file's outputs.
std::string mixing(FileBuilder& b, std::vector<size_t> wanted = {}, int64_t batch = 8) {
  const Classes classes = classify(b.file());
  const Network network = bind(b.file(), classes, {.batch = batch, .outputs = wanted});
  const Network other = bind(b.file(), classes, {.batch = batch / 2, .outputs = wanted});
  const BoundNetwork half = {other, batch / 2};
  if (wanted.empty()) wanted = {0};
  return mixing_node({network, batch}, &half, {network.outputs[wanted[0]]});
}

std::string mixing_of(const Body& body, int64_t batch = 8) {
  FileBuilder b;
  b.output(body(b, b.input("x", {kBatch, {kFeatures}})));
  return mixing(b, {}, batch);
}

void expect_mixed(const std::string& op, const Body& body) {
  EXPECT_NE(mixing_of(body).find("node " + op + " "), std::string::npos)
      << op << " expected, found: " << mixing_of(body);
}

void expect_apart(const char* what, const Body& body) { EXPECT_EQ(mixing_of(body), "") << what; }

int sliced(FileBuilder& b, int x, int64_t from, int64_t to, int64_t step = 1) {
  const auto list = [&](int64_t number) {
    return b.integers("n" + std::to_string(b.file().values.size()), {number});
  };
  return b.node("Slice", {x, list(from), list(to), list(0), list(step)});
}

int reshaped(FileBuilder& b, int x, const std::vector<int64_t>& to) {
  return b.node("Reshape", {x, b.integers("to" + std::to_string(b.file().values.size()), to)});
}

int transposed(FileBuilder& b, int x, std::vector<int64_t> order) {
  return b.node("Transpose", {x}, {{"perm", std::move(order)}});
}

// 0, 1, ... N - 1, of the batch.
int counted(FileBuilder& b, int x) {
  const int extents = b.node("Shape", {x}, {{"end", int64_t{1}}});
  const int batch = b.node("Squeeze", {extents});
  const auto number = [&](const char* name, int64_t is) {
    return b.initializer(name, array_of_int64({}, {is}));
  };
  return b.node("Range", {number("zero", 0), batch, number("one", 1)});
}

constexpr int64_t kEnd = int64_t{1} << 40;

TEST(OnnxMixing, NamesTheNode) {
  expect_mixed("ReduceMean", [](FileBuilder& b, int x) {
    return b.node("Sub", {x, b.node("ReduceMean", {x, b.integers("axes", {0})})});
  });
  expect_mixed("ReduceSum", [](FileBuilder& b, int x) {
    return b.node("Mul", {x, b.node("ReduceSum", {x})});
  });
  expect_mixed("Softmax", [](FileBuilder& b, int x) {
    return b.node("Softmax", {x}, {{"axis", int64_t{0}}});
  });
  expect_mixed("CumSum", [](FileBuilder& b, int x) {
    return b.node("CumSum", {x, b.initializer("axis", array_of_int64({}, {0}))});
  });
  expect_mixed("MatMul", [](FileBuilder& b, int x) {
    return b.node("MatMul", {b.node("MatMul", {x, transposed(b, x, {1, 0})}), x});
  });
  expect_mixed("Einsum", [](FileBuilder& b, int x) {
    return b.node("Einsum",
                  {b.node("Einsum", {x, x}, {{"equation", std::string("bi,ci->bc")}}), x},
                  {{"equation", std::string("bc,ci->bi")}});
  });
  expect_mixed("Slice", [](FileBuilder& b, int x) { return sliced(b, x, -1, -kEnd, -1); });
  expect_mixed("Slice", [](FileBuilder& b, int x) {
    return b.node("Concat", {sliced(b, x, 1, kEnd), sliced(b, x, 0, 1)}, {{"axis", int64_t{0}}});
  });
  expect_mixed("Sub", [](FileBuilder& b, int x) { return b.node("Sub", {x, sliced(b, x, 0, 1)}); });
  expect_mixed("Gather", [](FileBuilder& b, int x) {
    return b.node(
        "Gather",
        {x,
         b.node("Sub",
                {b.node("Neg", {counted(b, x)}), b.initializer("last", array_of_int64({}, {1}))})});
  });
  // Each of two samples in a row reads the other one.
  expect_mixed("ReduceMean", [](FileBuilder& b, int x) {
    const int pairs = reshaped(b, x, {-1, 2, kFeatures});
    const int centred =
        b.node("Sub", {pairs, b.node("ReduceMean", {pairs, b.integers("axes", {1})})});
    return reshaped(b, centred, {-1, kFeatures});
  });
  expect_mixed("Reshape", [](FileBuilder& b, int x) {
    return reshaped(b, transposed(b, x, {1, 0}), {-1, kFeatures});
  });
  expect_mixed("Conv", [](FileBuilder& b, int x) {
    const int line = reshaped(b, x, {1, -1, kFeatures});
    const int turned = transposed(b, line, {0, 2, 1});
    const int y = b.node("Conv",
                         {turned, b.floats("w", {kFeatures, kFeatures, 3})},
                         {{"pads", std::vector<int64_t>{1, 1}}});
    return reshaped(b, transposed(b, y, {0, 2, 1}), {-1, kFeatures});
  });
}

TEST(OnnxMixing, KnowsWhatDependsOnTheBatch) {
  expect_mixed("Div", [](FileBuilder& b, int x) {
    const int batch = b.node("Shape", {x}, {{"end", int64_t{1}}});
    return b.node("Div", {x, b.node("Cast", {batch}, {{"to", int64_t{1}}})});
  });
  expect_mixed("Add", [](FileBuilder& b, int x) {
    const int places = b.node("Cast", {counted(b, x)}, {{"to", int64_t{1}}});
    return b.node("Add", {x, reshaped(b, places, {-1, 1})});
  });
  // The same for every sample.
  expect_apart("zeros of the batch", [](FileBuilder& b, int x) {
    return b.node("Add", {x, b.node("ConstantOfShape", {b.node("Shape", {x})})});
  });
  expect_apart("positions for each sample", [](FileBuilder& b, int x) {
    std::vector<double> places;
    for (int64_t i = 0; i < kFeatures; ++i) places.push_back(static_cast<double>(i));
    const int row = b.initializer("row", array_of(ElementType::kFloat, {1, kFeatures}, places));
    return b.node("Add", {x, b.node("Expand", {row, b.node("Shape", {x})})});
  });
}

TEST(OnnxMixing, SamplesStayApart) {
  expect_apart("rows", [](FileBuilder& b, int x) {
    return b.node(
        "Softmax", {b.node("MatMul", {x, b.floats("w", {kFeatures, 5})})}, {{"axis", int64_t{1}}});
  });
  expect_apart("turned twice", [](FileBuilder& b, int x) {
    return sliced(b, sliced(b, x, -1, -kEnd, -1), -1, -kEnd, -1);
  });
  expect_apart("windows", [](FileBuilder& b, int x) {
    const int images = reshaped(b, x, {-1, 2, 4, 1});
    const int windows = reshaped(
        b, transposed(b, reshaped(b, images, {-1, 1, 2, 2, 2, 1}), {0, 1, 3, 2, 4, 5}), {-1, 4, 1});
    const int shares = b.node("Softmax", {windows}, {{"axis", int64_t{1}}});
    return reshaped(b,
                    transposed(b, reshaped(b, shares, {-1, 1, 2, 2, 2, 1}), {0, 1, 3, 2, 4, 5}),
                    {-1, kFeatures});
  });
  expect_apart("heads beside samples", [](FileBuilder& b, int x) {
    const int heads = reshaped(b, x, {-1, 2, 2});
    const int scores = b.node("Softmax",
                              {b.node("MatMul", {heads, transposed(b, heads, {0, 2, 1})})},
                              {{"axis", int64_t{-1}}});
    return reshaped(b, b.node("MatMul", {scores, heads}), {-1, kFeatures});
  });
  expect_apart("time first", [](FileBuilder& b, int x) {
    const int steps = transposed(b, reshaped(b, x, {-1, 4, 2}), {1, 0, 2});
    const int y = b.node("LSTM",
                         {steps, b.floats("w", {1, 12, 2}), b.floats("r", {1, 12, 3})},
                         {{"hidden_size", int64_t{3}}},
                         2);
    const int last = sliced(b, y, -1, kEnd);  // (1, 1, N, 3)
    return reshaped(b, last, {-1, 3});
  });
  expect_apart("samples as groups of channels", [](FileBuilder& b, int x) {
    const int lines = reshaped(b, x, {1, -1, 4});  // (1, 2 N, 4)
    const int y =
        b.node("InstanceNormalization",
               {lines,
                b.node("ConstantOfShape",
                       {b.node("Shape", {lines}, {{"start", int64_t{1}}, {"end", int64_t{2}}})}),
                b.node("ConstantOfShape",
                       {b.node("Shape", {lines}, {{"start", int64_t{1}}, {"end", int64_t{2}}})})});
    return reshaped(b, y, {-1, kFeatures});
  });
  expect_apart("the place of the largest in each row", [](FileBuilder& b, int x) {
    const int largest = b.node("ArgMax", {x}, {{"axis", int64_t{1}}, {"keepdims", int64_t{1}}});
    const int rows = reshaped(b, counted(b, x), {-1, 1});
    const int places = b.node("Concat", {rows, largest}, {{"axis", int64_t{1}}});
    return b.node("Mul", {x, reshaped(b, b.node("GatherND", {x, places}), {-1, 1})});
  });
  expect_apart("the same in one axis", [](FileBuilder& b, int x) {
    const int largest = b.node("ArgMax", {x}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
    const int begins =
        b.node("Mul", {counted(b, x), b.initializer("width", array_of_int64({}, {kFeatures}))});
    const int picked = b.node("Gather", {reshaped(b, x, {-1}), b.node("Add", {begins, largest})});
    return b.node("Mul", {x, reshaped(b, picked, {-1, 1})});
  });
}

// Batch norms have a setting of their own.
TEST(OnnxMixing, BatchNormsDoNotCount) {
  expect_apart("batch norm", [](FileBuilder& b, int x) {
    const Extents channels = {kFeatures};
    return b.node("BatchNormalization",
                  {x,
                   b.floats("gain", channels),
                   b.floats("bias", channels),
                   b.floats("mean", channels),
                   b.floats("var", channels)});
  });
}

TEST(OnnxMixing, OtherOutputsMayMix) {
  FileBuilder b;
  const int x = b.input("x", {kBatch, {kFeatures}});
  b.output(b.node("Relu", {x}));
  b.output(b.node("Sub", {x, b.node("ReduceMean", {x, b.integers("axes", {0})})}));
  EXPECT_EQ(mixing(b, {0}), "");
  EXPECT_NE(mixing(b, {1}), "");
}

}  // namespace
}  // namespace lockstep::onnx

// Catches a batch axis that is freed in the wrong place, so that samples get elements of others or
// lose some, and files that are said to be free but are not.
#include "models/onnx/bind/free_batch.h"

#include <gtest/gtest.h>

#include "models/onnx/samples/mixing.h"
#include "runtime/base/error.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kWidth = 6;  // of a sample

// All nodes are folded if the input is known, so that bind() computes the output.
std::vector<float> output_of(const File& file, int64_t batch, const std::vector<double>& x) {
  BindOptions options = options_with_batch(file, batch);
  options.all_constant = true;
  options.known["x"] = array_of(ElementType::kFloat, {batch, kWidth}, x);
  const Network network = bind(file, {}, options);
  const Value& output = network.values[static_cast<size_t>(network.outputs[0])];
  EXPECT_EQ(output.kind, ValueKind::kConstant) << "an op without an evaluator";
  return output.array.as_float();
}

// Frees the file and compares the freed network of `batch` * 3 samples with the file's own.
FreedFile expect_free(FileBuilder& b, int64_t batch) {
  const File& file = b.file();
  FreedFile freed = free_batch(file, {}, batch);
  EXPECT_EQ(freed.reason, "");
  if (!freed.reason.empty()) return freed;
  constexpr int64_t kParts = 3;
  std::vector<double> x(static_cast<size_t>(kParts * batch * kWidth));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<double>(i);
  std::vector<float> expected;
  const auto part = static_cast<std::ptrdiff_t>(batch * kWidth);
  for (int64_t i = 0; i < kParts; ++i) {
    const auto rows = output_of(file, batch, {x.begin() + i * part, x.begin() + (i + 1) * part});
    expected.insert(expected.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(output_of(freed.file, kParts * batch, x), expected);
  const Network four = bind(freed.file, {}, options_with_batch(freed.file, 4));
  EXPECT_EQ(mixing_node({four, 4}, nullptr, four.outputs), "");
  return freed;
}

int add_input(FileBuilder& b, int64_t batch) { return b.input("x", {{batch}, {kWidth}}); }

std::vector<int64_t> swapped() { return {0, 2, 1}; }

TEST(FreeBatch, NothingToChange) {
  FileBuilder b;
  b.output(b.node("Relu", {add_input(b, 1)}));
  EXPECT_EQ(expect_free(b, 1).changes, 0);
}

TEST(FreeBatch, ShapesWithTheBatch) {
  for (const int64_t batch : {1, 4}) {
    FileBuilder b;
    const int x = add_input(b, batch);
    const int heads = b.node("Reshape", {x, b.integers("to_heads", {batch, 2, 3})});
    const int turned = b.node("Transpose", {heads}, {{"perm", swapped()}});
    const int rows = b.node("Reshape", {turned, b.integers("to_rows", {batch * 3, 2})});
    const int back = b.node("Reshape", {rows, b.integers("back", {batch, 3, 2})});
    // This one has the batch open, but in the wrong axis.
    b.output(b.node("Reshape", {back, b.integers("flat", {batch, -1})}));
    EXPECT_EQ(expect_free(b, batch).changes, 4) << batch;
  }
}

// Time first: the batch is the second axis, and stays there.
TEST(FreeBatch, BatchInTheSecondAxis) {
  FileBuilder b;
  const int x = b.node("Reshape", {add_input(b, 2), b.integers("s", {2, 3, 2})});
  const int time = b.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  const int split = b.node("Reshape", {time, b.integers("t", {3, 2, 2, 1})});
  b.output(b.node("Transpose", {split}, {{"perm", std::vector<int64_t>{1, 0, 2, 3}}}));
  expect_free(b, 2);
}

// As PyTorch's attention does it: heads join the batch, time and samples are the rows of a matrix.
TEST(FreeBatch, BatchBesideHeadsAndTime) {
  for (const int64_t batch : {1, 4}) {
    FileBuilder b;
    const auto permuted = [&](int x, std::vector<int64_t> order) {
      return b.node("Transpose", {x}, {{"perm", std::move(order)}});
    };
    const auto shaped = [&](int x, const std::vector<int64_t>& shape) {
      return b.node("Reshape", {x, b.integers("s" + std::to_string(x), shape)});
    };
    const int x = shaped(add_input(b, batch), {batch, 3, 2});
    const int time = permuted(x, {1, 0, 2});                         // (T, N, C)
    const int heads = shaped(time, {3, batch * 2, 1});               // (T, N * H, D)
    const int first = permuted(heads, {1, 0, 2});                    // (N * H, T, D)
    const int split = shaped(first, {batch, 2, 3, 1});               // (N, H, T, D)
    const int last = permuted(split, {2, 0, 1, 3});                  // (T, N, H, D)
    const int rows = b.node("Neg", {shaped(last, {3 * batch, 2})});  // (T * N, C)
    b.output(permuted(shaped(rows, {3, batch, 2}), {1, 0, 2}));
    expect_free(b, batch);
  }
}

// as_strided() of PyTorch's exporter: all elements by their indices, in order.
TEST(FreeBatch, IndicesInOrder) {
  for (const int64_t batch : {1, 2}) {
    FileBuilder b;
    const int row = b.node("Reshape", {add_input(b, batch), b.integers("row", {-1})});
    std::vector<int64_t> order(static_cast<size_t>(batch * kWidth));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    const int indices = b.initializer("indices", array_of_int64({batch, 3, 2}, order));
    const int taken = b.node("Gather", {row, indices}, {{"axis", int64_t{0}}});
    b.output(b.node("Transpose", {taken}, {{"perm", swapped()}}));
    expect_free(b, batch);
  }
}

TEST(FreeBatch, RowsForEachSample) {
  for (const int64_t batch : {1, 2}) {
    FileBuilder b;
    const int x = b.node("Reshape", {add_input(b, batch), b.integers("s", {batch, 3, 2})});
    const int token = b.floats("class_token", {1, 1, 2});
    const int tokens =
        batch == 1 ? token : b.node("Expand", {token, b.integers("e", {batch, 1, 2})});
    const int all = b.node("Concat", {tokens, x}, {{"axis", int64_t{1}}});
    const int positions =
        b.initializer("positions",
                      array_of(ElementType::kFloat,
                               {batch, 4, 1},
                               batch == 1 ? std::vector<double>{1, 2, 3, 4}
                                          : std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4}));
    b.output(b.node("Add", {all, positions}));
    expect_free(b, batch);
  }
}

TEST(FreeBatch, WhatCannotBeFree) {
  const auto reason_of = [](FileBuilder& b, int64_t batch) {
    return free_batch(b.file(), {}, batch).reason;
  };
  FileBuilder squeezed;
  squeezed.output(squeezed.node("Squeeze", {add_input(squeezed, 1), squeezed.integers("a", {0})}));
  EXPECT_NE(reason_of(squeezed, 1).find("Squeeze"), std::string::npos) << reason_of(squeezed, 1);
  FileBuilder own;  // each sample has a row of its own
  const int rows = own.initializer("rows", array_of(ElementType::kFloat, {2, 1}, {1, 2}));
  own.output(own.node("Add", {add_input(own, 2), own.node("Neg", {rows})}));
  EXPECT_NE(reason_of(own, 2).find("a row of its own for each of the 2 samples"), std::string::npos)
      << reason_of(own, 2);
}

}  // namespace
}  // namespace lockstep::onnx

// Catches: elements lost or mixed up at the borders of rows, parts, vectors and blocks, for any
// choice of dimensions; NaN lost; a mean divided by the wrong count, or by parts; gradients that
// forget ties or zeros; sums whose order follows the number of threads.
#include "runtime/graph/ops/reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"
#include "tests/reference/pointwise.h"
#include "tests/reference/reductions.h"

namespace lockstep::test {
namespace {

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kReduce, "double", reduce_reference},
    {graph::OpKind::kPointwise, "double", pointwise_reference},
};

// A sum's error grows with its longest chain of additions, a 16th of the elements or less, or 16
// rows; of pointwise parts of the gradients some products.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  if (expected.kind() == graph::OpKind::kPointwise) {
    const auto element = pointwise_element(graph::PointwiseForward<double>{expected}, i);
    return {element.error, std::abs(element.value)};
  }
  const graph::ReduceForward<double> op{expected};
  const auto count = static_cast<double>(op.loops.reduced.count);
  const double y = std::abs(static_cast<const double*>(op.y)[i]);
  if (op.kind == graph::ReduceKind::kMax || op.kind == graph::ReduceKind::kMin) return {0, y};
  if (op.kind == graph::ReduceKind::kProduct) return {count * y, y};
  double terms = 0;
  for (int64_t r = 0; r < op.loops.reduced.count; ++r)
    terms += std::abs(op.x[op.loops.kept.offset(i) + op.loops.reduced.offset(r)]);
  if (op.kind == graph::ReduceKind::kMean) terms /= count;
  return {(2 + std::sqrt(count) / 2) * terms, y};
}

OpTest reduce_test(graph::ReduceKind kind, const Shape& shape, const std::vector<int>& axes) {
  std::string name = "reduce " + std::to_string(static_cast<int>(kind)) + " of " + to_string(shape);
  for (const int axis : axes) name += " " + std::to_string(axis);
  return {.name = name,
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", shape);
                ops::reduce(builder, "y", x, kind, axes, false);
              },
          .reference = kReference,
          .cpu = cpu::kCpuReduce,
          .cuda = cuda::kCudaReduce,
          .tolerance = tolerance};
}

constexpr graph::ReduceKind kKinds[] = {graph::ReduceKind::kSum,
                                        graph::ReduceKind::kMean,
                                        graph::ReduceKind::kMax,
                                        graph::ReduceKind::kMin,
                                        graph::ReduceKind::kProduct};

struct Case {
  Shape shape;
  std::vector<int> axes;
};

TEST(ReduceTest, AnyDimensionsOnAllDevices) {
  const Case cases[] = {
      {{7}, {0}},
      {{5, 17}, {1}},
      {{5, 17}, {0}},
      {{5, 17}, {0, 1}},
      {{5, 17}, {}},
      {{3, 19, 33}, {1}},
      {{3, 19, 33}, {0, 2}},
      {{3, 19, 3}, {-1, 0}},
      {{2, 3, 4, 5}, {1, 3}},
      {{2, 3, 4, 5}, {0, 2}},
      {{2, 1, 3, 2, 1, 2, 3, 2}, {1, 3, 5, 7}},
      {{1, 1, 4}, {0, 1}},
      {{1}, {0}},
  };
  for (const graph::ReduceKind kind : kKinds) {
    for (const auto& [shape, axes] : cases) {
      OpTest test = reduce_test(kind, shape, axes);
      test.low = 0.5;  // products of many stay within 16 bits
      test.high = 1.5;
      check_on_all_devices(test);
    }
  }
}

TEST(ReduceTest, SeveralParts) {
  const Case cases[] = {
      {{3, 9001}, {1}},  // parts of a row
      {{9001}, {0}},
      {{130, 2, 70}, {0, 2}},  // parts of several runs
      {{3000, 5}, {0}},        // of columns
      {{2, 170, 3}, {1}},
      {{701, 2, 3}, {0}},
  };
  for (const auto& [shape, axes] : cases) {
    for (const graph::ReduceKind kind : {graph::ReduceKind::kMean, graph::ReduceKind::kMax}) {
      OpTest test = reduce_test(kind, shape, axes);
      if (kind == graph::ReduceKind::kMax) test.gradients = 0;  // tens of thousands of terms each
      check_on_all_devices(test);
    }
  }
}

TEST(ReduceTest, GradientsMatchFiniteDifferences) {
  for (const graph::ReduceKind kind : kKinds) {
    for (const auto& axes : {std::vector<int>{1}, std::vector<int>{0, 2}, std::vector<int>{}}) {
      OpTest test = reduce_test(kind, {2, 3, 4}, axes);
      // Far enough apart that none becomes the largest within a step.
      test.value = [](const std::string& tensor, int64_t i) {
        return tensor == "x" ? 0.4 + 0.05 * static_cast<double>(i * 7 % 24) : 0.3 + 0.1 * i;
      };
      check_gradient_of_reference(test);
    }
  }
}

TEST(ReduceTest, ProductsWithZerosHaveTheGradientsOfTheOthers) {
  OpTest test = reduce_test(graph::ReduceKind::kProduct, {4, 5}, {1});
  test.value = [](const std::string& tensor, int64_t i) {
    const bool zero = i == 2 || i == 6 || i == 8;  // one, two, none
    return tensor == "x" && zero ? 0.0 : 0.5 + 0.1 * i;
  };
  check_gradient_of_reference(test);
  check_on_all_devices(test);
}

TEST(ReduceTest, TiesShareTheGradient) {
  for (const graph::ReduceKind kind : {graph::ReduceKind::kMax, graph::ReduceKind::kMin}) {
    OpTest test = reduce_test(kind, {3, 4}, {1});
    test.value = [](const std::string& tensor, int64_t i) {
      return tensor == "x" ? static_cast<double>(i % 2) : 6.0;
    };
    test.low = 0;
    check_on_all_devices(test);
    // Two of four are the largest, and move by half as much as both together: a step of one moves
    // the maximum up by its whole and down by nothing, which the middle of both sides is too.
    check_gradient_of_reference(test);
  }
}

TEST(ReduceTest, HidesNoNaN) {
  for (const graph::ReduceKind kind : kKinds) {
    for (const int axis : {0, 1}) {
      OpTest test = reduce_test(kind, {37, 41}, {axis});
      test.gradients = 0;
      test.low = 0.9;
      test.high = 1.1;
      test.value = [](const std::string&, int64_t i) {
        return i == 3 || i == 400 || i == 37 * 41 - 1 ? std::nan("") : 1.01;
      };
      check_on_all_devices(test);
    }
  }
}

TEST(ReduceTest, SumsOfIntegersAreExactOnManyThreads) {
  for (const int axis : {0, 1}) {
    OpTest test = reduce_test(graph::ReduceKind::kSum, {301, 1203}, {axis});
    test.cuda = {};
    test.gradients = 0;
    test.value = [](const std::string&, int64_t i) { return static_cast<double>(i * 37 % 19 - 9); };
    test.tolerance = [](const graph::OpCall&, graph::OutputName, int64_t) {
      return Tolerance{0, 0};
    };
    check_on_all_devices(test);
  }
}

TEST(ReduceTest, KeepsDimensionsWhereToldTo) {
  graph::GraphBuilder builder(graph::Purpose::kInference);
  const TensorId x = builder.activation_tensor("x", {2, 3, 4});
  const auto shape = [&](const std::vector<int>& axes, bool keep) {
    return builder.shape(ops::reduce(builder, "y", x, graph::ReduceKind::kSum, axes, keep));
  };
  EXPECT_EQ(shape({1}, true), Shape({2, 1, 4}));
  EXPECT_EQ(shape({1, -1}, false), Shape({2}));
  EXPECT_EQ(shape({0, 1, 2}, false), Shape({}));
}

}  // namespace
}  // namespace lockstep::test

// Catches: an op that the roofline leaves out or counts twice, operations without their bytes, a
// product with the wrong extents.
#include "runtime/cuda/plan/roofline.h"

#include <gtest/gtest.h>

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::cuda {
namespace {

constexpr double kTera = 1e12;
// 100 TFLOP/s in 16 bits, 10 in floats, 1 TB/s.
constexpr GpuModel kGpu = {"test", 16, 90, 1, 10, 50, 100, 1000};

graph::Graph linear_graph(int64_t rows, int64_t inputs, int64_t outputs, DType compute) {
  graph::GraphOptions options(graph::Purpose::kInference);
  options.compute = compute;
  graph::GraphBuilder builder(options);
  const TensorId x = builder.input("x", {rows, inputs}, compute);
  const TensorId weight = builder.parameter("weight", {outputs, inputs}, {}, true);
  builder.keep(ops::linear(builder, "product", x, weight, kNoTensor, Activation::kNone));
  return std::move(builder).finish();
}

TEST(Roofline, LargeProductsTakeTheirOperations) {
  const Roofline roofline =
      predict_graph(linear_graph(4096, 8192, 2048, DType::kBF16), kGpu, false);
  const double seconds = 2.0 * 4096 * 8192 * 2048 / (100 * kTera);
  ASSERT_EQ(roofline.products.size(), 1u);
  const PredictedProduct& product = roofline.products[0];
  EXPECT_EQ(product.name, "product");
  EXPECT_EQ(std::tuple(product.m, product.n, product.k), std::tuple(4096, 2048, 8192));
  EXPECT_EQ(product.count, 1);
  EXPECT_DOUBLE_EQ(product.seconds, seconds);
  EXPECT_DOUBLE_EQ(roofline.seconds, seconds);
}

TEST(Roofline, SmallProductsTakeTheirBytes) {
  const Roofline roofline = predict_graph(linear_graph(8, 8192, 2048, DType::kBF16), kGpu, false);
  EXPECT_DOUBLE_EQ(roofline.seconds, 2.0 * (8 * 8192 + 8192 * 2048 + 8 * 2048) / kTera);
}

TEST(Roofline, FloatsHaveTheirOwnRates) {
  const graph::Graph graph = linear_graph(4096, 8192, 2048, DType::kF32);
  const double flops = 2.0 * 4096 * 8192 * 2048;
  EXPECT_DOUBLE_EQ(predict_graph(graph, kGpu, false).seconds, flops / (10 * kTera));
  EXPECT_DOUBLE_EQ(predict_graph(graph, kGpu, true).seconds, flops / (50 * kTera));
}

}  // namespace
}  // namespace lockstep::cuda

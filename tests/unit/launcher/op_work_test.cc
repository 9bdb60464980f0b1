// Catches: an op that is left out or counted twice, operations without their bytes, a product with
// the wrong extents, a rate of another type, measured times of another op, size or type.
#include "launcher/forecast/op_work.h"

#include <gtest/gtest.h>

#include "launcher/forecast/op_times.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::forecast {
namespace {

constexpr double kTera = 1e12;

// 100 TFLOP/s in 16 bits, 50 in TF32, 10 in floats, 1 TB/s.
Hardware test_gpu() {
  Hardware gpu;
  gpu.fp32_tflops = 10;
  gpu.tf32_tflops = 50;
  gpu.bf16_tflops = gpu.fp16_tflops = 100;
  gpu.memory_gbytes_per_s = 1000;
  gpu.gpu.multiprocessors = 100;
  return gpu;
}

graph::Graph linear_graph(int64_t rows, int64_t inputs, int64_t outputs, DType compute) {
  graph::GraphOptions options(graph::Purpose::kInference);
  options.compute = compute;
  graph::GraphBuilder builder(options);
  const TensorId x = builder.input("x", {rows, inputs}, compute);
  const TensorId weight = builder.parameter("weight", {outputs, inputs}, {}, true);
  builder.keep(ops::linear(builder, "product", x, weight, kNoTensor, Activation::kNone));
  return std::move(builder).finish();
}

// The only op of such a graph.
OpWork linear_work(int64_t rows, int64_t inputs, int64_t outputs, DType compute) {
  const GraphWork work = work_of(linear_graph(rows, inputs, outputs, compute));
  EXPECT_EQ(work.works.size(), 1u);
  EXPECT_EQ(work.works[0].count, 1);
  return work.works[0];
}

TEST(OpWork, ProductsHaveTheirExtents) {
  const OpWork work = linear_work(4096, 8192, 2048, DType::kBF16);
  EXPECT_EQ(work.name, "product");
  ASSERT_EQ(work.products.size(), 1u);
  const Product& product = work.products[0];
  EXPECT_EQ(std::tuple(product.m, product.n, product.k), std::tuple(4096, 2048, 8192));
  EXPECT_DOUBLE_EQ(work.flops(), 2.0 * 4096 * 8192 * 2048);
  EXPECT_DOUBLE_EQ(work.bytes(), 2.0 * (4096 * 8192 + 8192 * 2048 + 4096 * 2048));
}

TEST(OpTimes, TheLeastTimeIsThatOfOperationsOrBytes) {
  const Hardware gpu = test_gpu();
  const OpTimes times(gpu, {.compute = DType::kBF16}, {});
  const OpWork large = linear_work(4096, 8192, 2048, DType::kBF16);
  EXPECT_DOUBLE_EQ(times.least_seconds(large), 2.0 * 4096 * 8192 * 2048 / (100 * kTera));
  const OpWork small = linear_work(8, 8192, 2048, DType::kBF16);
  EXPECT_DOUBLE_EQ(times.least_seconds(small), 2.0 * (8 * 8192 + 8192 * 2048 + 8 * 2048) / kTera);
  for (const OpWork& work : {large, small}) {
    const OpTime time = times.time(work);
    EXPECT_FALSE(time.measured);
    EXPECT_LT(times.least_seconds(work), time.seconds.low);
    EXPECT_LT(time.seconds.low, time.seconds.high);
  }
}

TEST(OpTimes, FloatsHaveTheirOwnRates) {
  const Hardware gpu = test_gpu();
  const OpWork work = linear_work(4096, 8192, 2048, DType::kF32);
  const double flops = 2.0 * 4096 * 8192 * 2048;
  EXPECT_DOUBLE_EQ(OpTimes(gpu, {}, {}).least_seconds(work), flops / (10 * kTera));
  EXPECT_DOUBLE_EQ(OpTimes(gpu, {.tf32 = true}, {}).least_seconds(work), flops / (50 * kTera));
}

// Measured at two sizes, and once as another op, in another type and on more threads, which must
// not count: nearer ones are there.
TEST(OpTimes, MeasuredOpsAreScaledByTheirWork) {
  Hardware cpu = test_gpu();
  cpu.kind = Hardware::Kind::kCpu;
  cpu.cpu.cores = 4;
  const auto add = [&](const char* op, const char* type, int64_t threads, int64_t rows, double us) {
    const OpWork work = linear_work(rows, 512, 512, DType::kF32);
    cpu.ops.push_back({.op = op,
                       .type = type,
                       .threads = threads,
                       .extents = work.extents,
                       .flops = work.flops(),
                       .bytes = work.bytes(),
                       .us = us});
  };
  add("linear", "FP32", 1, 512, 2000);
  add("linear", "FP32", 1, 2048, 7000);
  add("linear", "FP32", 4, 1024, 1);
  add("linear_backward", "FP32", 1, 1024, 1);
  add("linear", "BF16", 1, 1024, 1);
  const OpTimes times(cpu, {}, {.ranks = 1, .threads = 1});
  const OpTime known = times.time(linear_work(512, 512, 512, DType::kF32));
  EXPECT_TRUE(known.measured);
  EXPECT_NEAR(known.seconds.middle(), 2000e-6, 1e-6);
  EXPECT_LT(known.seconds.low, 2000e-6);
  const OpTime between = times.time(linear_work(1024, 512, 512, DType::kF32));
  EXPECT_GT(between.seconds.middle(), 3400e-6);
  EXPECT_LT(between.seconds.middle(), 4100e-6);
  // Farther from what was measured, the range is wider.
  const auto width = [](const OpTime& time) { return time.seconds.high / time.seconds.low; };
  EXPECT_GT(width(between), width(known));
  EXPECT_GT(width(times.time(linear_work(65536, 512, 512, DType::kF32))), width(between));
}

}  // namespace
}  // namespace lockstep::forecast

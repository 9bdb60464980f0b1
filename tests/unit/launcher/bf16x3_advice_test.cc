// Catches: advice to use execution.bf16x3 where it is slower or does not exist, and a measurement
// that fails or computes nothing.
#include "launcher/bench/bf16x3_advice.h"

#include <gtest/gtest.h>

#include "runtime/cpu/device.h"

namespace lockstep::launcher {
namespace {

TEST(Bf16x3Advice, NamesTheFactorIfItIsFaster) {
  const auto expect = [](const std::string& advice, bool bf16x3, bool bf16) {
    EXPECT_EQ(advice.find("execution.bf16x3") != std::string::npos, bf16x3) << advice;
    EXPECT_EQ(advice.find("3.0 times") != std::string::npos, bf16x3) << advice;
    EXPECT_EQ(advice.find("execution.precision BF16") != std::string::npos, bf16) << advice;
    EXPECT_EQ(advice.find("5.0 times") != std::string::npos, bf16) << advice;
  };
  expect(bf16x3_advice(30, 10, 6), true, true);
  expect(bf16x3_advice(30, 10, 30), true, false);
  expect(bf16x3_advice(30, 30, 6), false, true);
  EXPECT_EQ(bf16x3_advice(10, 10, 10), "");
  EXPECT_EQ(bf16x3_advice(10, 30, 30), "");
}

TEST(Bf16x3Advice, IsMeasuredOnlyWhereItCanBeFaster) {
  const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  for (const bool bf16x3 : {false, true}) EXPECT_GT(linear_layer_ms(*cpu, bf16x3), 0);
  EXPECT_GT(linear_layer_ms(*cpu, false, DType::kBF16), 0);
  ExecutionConfig execution;
  execution.precision = Precision::kFp32;
  execution.bf16x3 = true;
  EXPECT_EQ(measured_bf16x3_advice(*cpu, execution), "");
  execution.bf16x3 = false;
  if (!cpu::has_bf16_unit()) {
    EXPECT_EQ(measured_bf16x3_advice(*cpu, execution), "");
  }
}

}  // namespace
}  // namespace lockstep::launcher

// Catches: a GPU that trains in FP32 without a word, advice that the config would be refused with,
// and advice if nothing is slow.
#include "runtime/run/capability_checks.h"

#include <gtest/gtest.h>

namespace lockstep::run {
namespace {

TEST(TensorCoreAdvice, NamesWhatTheModelMayCompute) {
  exec::OpSet cpu = {}, gpu = {};
  gpu.separate_memory = true;
  ExecutionConfig execution;
  execution.precision = Precision::kFp32;
  const std::string advice = tensor_core_advice(execution, false, gpu);
  EXPECT_NE(advice.find("--set execution.precision=BF16 "), std::string::npos) << advice;
  EXPECT_NE(advice.find("--set execution.tf32=true "), std::string::npos) << advice;
  EXPECT_EQ(tensor_core_advice(execution, false, cpu), "");

  // 16 bits are refused there.
  const std::string floats = tensor_core_advice(execution, true, gpu);
  EXPECT_EQ(floats.find("BF16"), std::string::npos) << floats;
  EXPECT_NE(floats.find("--set execution.tf32=true "), std::string::npos) << floats;

  execution.tf32 = true;
  EXPECT_EQ(tensor_core_advice(execution, false, gpu), "");
  execution.tf32 = false;
  execution.precision = Precision::kFp16;
  EXPECT_EQ(tensor_core_advice(execution, false, gpu), "");
}

}  // namespace
}  // namespace lockstep::run

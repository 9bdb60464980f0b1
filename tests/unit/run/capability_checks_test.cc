// Catches: a GPU that trains in FP32 without a word, advice that the config would be refused with,
// and advice if nothing is slow.
#include "runtime/run/capability_checks.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TensorCoreAdvice, NamesWhatTheModelMayCompute) {
  OpSet cpu = {}, gpu = {};
  gpu.separate_memory = true;
  RunConfig config;
  config.model = GptConfig();
  const std::string advice = tensor_core_advice(config, gpu);
  EXPECT_NE(advice.find("--set execution.precision=BF16 "), std::string::npos) << advice;
  EXPECT_NE(advice.find("--set execution.tf32=true "), std::string::npos) << advice;
  EXPECT_EQ(tensor_core_advice(config, cpu), "");

  OnnxConfig network;
  network.diffusion.emplace();  // 16 bits are refused there
  config.model = network;
  const std::string floats = tensor_core_advice(config, gpu);
  EXPECT_EQ(floats.find("BF16"), std::string::npos) << floats;
  EXPECT_NE(floats.find("--set execution.tf32=true "), std::string::npos) << floats;

  config.execution.tf32 = true;
  EXPECT_EQ(tensor_core_advice(config, gpu), "");
  config.execution.tf32 = false;
  config.execution.precision = Precision::kFp16;
  EXPECT_EQ(tensor_core_advice(config, gpu), "");
}

}  // namespace
}  // namespace lockstep

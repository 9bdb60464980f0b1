// Catches: a value of LOCKSTEP_SIMD that is misread, or accepted although the processor has no such
// units, and kernels that use more than it allows.

#include "runtime/cpu/simd_level.h"

#include <cstdio>
#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/cpu/matmul/bf16x3.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {
namespace {

constexpr SimdLevel kAll[] = {SimdLevel::kAvx2, SimdLevel::kAvx512, SimdLevel::kAmx};

// The message of the ConfigError that rejects the value.
std::string rejection(const char* value, std::span<const SimdLevel> usable) {
  try {
    parse_simd_level(value, usable);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(SimdLevelTest, IsTheHighestByDefault) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(parse_simd_level(value, kAll), SimdLevel::kAmx);
    EXPECT_EQ(parse_simd_level(value, std::span(kAll).first(1)), SimdLevel::kAvx2);
    EXPECT_EQ(parse_simd_level(value, {}), SimdLevel::kBaseline);
  }
}

TEST(SimdLevelTest, IsTheOneWithThisName) {
  for (const SimdLevel level : kAll) EXPECT_EQ(parse_simd_level(name_of(level), kAll), level);
  EXPECT_EQ(parse_simd_level("AVX2", kAll), SimdLevel::kAvx2);
  EXPECT_EQ(parse_simd_level("AVX512", kAll), SimdLevel::kAvx512);
  EXPECT_EQ(parse_simd_level("AMX", kAll), SimdLevel::kAmx);
}

TEST(SimdLevelTest, RejectsOtherNamesAndUnitsThatAreMissing) {
  for (const char* value : {"avx2", "AVX-512", "AVX2 ", "baseline", "SSE4", "1"})
    EXPECT_EQ(rejection(value, kAll),
              fmt::format("LOCKSTEP_SIMD is '{}'; allowed here: AVX2, AVX512, AMX", value));
  EXPECT_EQ(rejection("AMX", std::span(kAll).first(2)),
            "LOCKSTEP_SIMD is 'AMX'; allowed here: AVX2, AVX512");
  EXPECT_EQ(rejection("AVX512", std::span(kAll).first(1)),
            "LOCKSTEP_SIMD is 'AVX512'; allowed here: AVX2");
  EXPECT_EQ(rejection("AVX2", {}),
            "LOCKSTEP_SIMD is 'AVX2'; allowed here: no value, leave it unset");
}

// In processes of their own, because a process reads the variable once.
class SimdLevelDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "skipped: this processor has no AVX2";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
};

TEST_F(SimdLevelDeathTest, LimitsTheKernelsOfAProcess) {
  const auto process_of_avx2 = [] {
    ::setenv("LOCKSTEP_SIMD", "AVX2", 1);
    const bool limited = simd_level() == SimdLevel::kAvx2 && test::cpu_has(HWY_AVX2) &&
                         !test::cpu_has(HWY_AVX3) &&
                         &bf16x3_kernels() == &portable_bf16x3_kernels();
    std::_Exit(limited ? 0 : 1);
  };
  EXPECT_EXIT(process_of_avx2(), testing::ExitedWithCode(0), "");
}

TEST_F(SimdLevelDeathTest, RejectsAnUnknownValue) {
  const auto process_of_sse9 = [] {
    ::setenv("LOCKSTEP_SIMD", "SSE9", 1);
    try {
      simd_level();
    } catch (const ConfigError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(static_cast<int>(error.code()));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(
      process_of_sse9(), testing::ExitedWithCode(2), "LOCKSTEP_SIMD is 'SSE9'; allowed here: AVX2");
}

}  // namespace
}  // namespace lockstep::cpu

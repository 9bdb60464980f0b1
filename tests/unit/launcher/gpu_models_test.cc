// Catches: a name that is not known, or a number of GiB that is read wrongly.
#include "launcher/ranks/gpu_models.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(GpuModels, NamesAndGiB) {
  EXPECT_GT(run_bytes_of_gpu("H200"), 130 * kGiB);
  EXPECT_LT(run_bytes_of_gpu("H200"), 141 * kGiB);
  EXPECT_LT(run_bytes_of_gpu("A100-40GB"), 40 * kGiB);
  EXPECT_EQ(run_bytes_of_gpu("24"), kGiB * 24 - kGiB * 3 / 2);
  EXPECT_EQ(run_bytes_of_gpu("2.5"), kGiB);
}

TEST(GpuModels, RefusesTheRest) {
  for (const char* name : {"", "h200", "A100", "1.5", "-3", "24GB", "nan", "inf", "1e9"}) {
    try {
      run_bytes_of_gpu(name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("A100-80GB"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep

// Catches: a peak of zero, and one of tiles on a processor that has none or whose tiles are not in
// use.
#include "runtime/cpu/peak.h"

#include <gtest/gtest.h>

#include "runtime/cpu/simd_level.h"

namespace lockstep::cpu {
namespace {

TEST(PeakTest, IsThatOfTheUnitsInUse) {
  const double multiply_adds = measure_peak_flops();
  // Limits that no core leaves, not even with sanitizers.
  EXPECT_GT(multiply_adds, 1e8);
  EXPECT_LT(multiply_adds, 1e13);
  if (simd_level() == SimdLevel::kAmx)
    EXPECT_GT(measure_tile_flops(), multiply_adds);
  else
    EXPECT_EQ(measure_tile_flops(), 0);
}

}  // namespace
}  // namespace lockstep::cpu

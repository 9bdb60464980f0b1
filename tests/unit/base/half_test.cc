// Catches: a conversion that rounds wrongly (ties, subnormals, overflow, the border of infinity) or
// that loses a number which the type can hold.

#include "runtime/base/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

// Value of an IEEE number with the given widths of exponent and mantissa.
double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <typename T>
void check_all(int exponent_bits, int mantissa_bits) {
  double last = std::nan("");
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const T stored{static_cast<uint16_t>(i)};
    const double value = value_of(stored.bits, exponent_bits, mantissa_bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(stored))) << i;
      EXPECT_TRUE(std::isnan(to_float(round_to<T>(to_float(stored))))) << i;
      last = value;
      continue;
    }
    ASSERT_EQ(to_float(stored), value) << i;
    ASSERT_EQ(round_to<T>(static_cast<float>(value)).bits, stored.bits) << i;
    // Between neighbours: the middle goes to the even one, what lies beside it to the nearer one.
    if (i % 0x8000 != 0 && std::isfinite(last)) {
      const bool finite = std::isfinite(value);
      const double next =
          finite ? value
                 : 2 * last - value_of(static_cast<uint16_t>(i - 2), exponent_bits, mantissa_bits);
      const auto middle = static_cast<float>((last + next) / 2);
      const T below{static_cast<uint16_t>(i - 1)};
      if (static_cast<double>(middle) == (last + next) / 2) {
        ASSERT_EQ(round_to<T>(middle).bits, i % 2 == 0 ? stored.bits : below.bits) << i;
        ASSERT_EQ(round_to<T>(std::nextafterf(middle, 0)).bits, below.bits) << i;
        ASSERT_EQ(round_to<T>(std::nextafterf(middle, middle * 2)).bits, stored.bits) << i;
      }
    }
    last = value;
  }
}

TEST(HalfTest, BFloat16IsTheNearest) { check_all<BFloat16>(8, 7); }
TEST(HalfTest, Float16IsTheNearest) { check_all<Float16>(5, 10); }

}  // namespace
}  // namespace lockstep

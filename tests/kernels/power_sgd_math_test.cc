// Catches: a row, column or term that is lost or counted twice at the borders of panels, groups of
// ranks and vectors; columns that are not orthonormal, or noise where one depends on others; NaN
// that is lost; bits that depend on threads or vector width.

#include "runtime/cpu/flat/power_sgd.h"

#include "runtime/cpu/flat/orthonormalize.h"
#include "tests/reference/power_sgd_checks.h"

namespace lockstep::test {
namespace {

const PowerSgdMath kMath = {cpu::power_sgd_left,
                            cpu::power_sgd_right,
                            cpu::power_sgd_product,
                            cpu::orthonormalize,
                            cpu::power_sgd_subtract,
                            cpu::fill_zero_columns};

TEST(PowerSgdMathTest, ProductsOfAllSmallShapes) {
  test::for_each_target([](const std::string& target) {
    for (const int rank : kPowerSgdRanks) {
      for (int64_t n = 1; n <= 35; ++n) {
        test::check_products(kMath, {n, 36 - n, rank}, n % 2, target);
        test::check_products(kMath, {36 - n, 3 * n, rank}, 0, target);
      }
    }
  });
}

// More rows and columns than a panel has, of each rank.
TEST(PowerSgdMathTest, ProductsOfSeveralPanels) {
  test::for_each_target([](const std::string& target) {
    for (const int rank : kPowerSgdRanks) {
      test::check_products(kMath, {1061, 21, rank}, 0, target);
      test::check_products(kMath, {4501, 18, rank}, 0, target);
      test::check_products(kMath, {6, 33000 / rank + 5, rank}, 0, target);
    }
  });
}

TEST(PowerSgdMathTest, OrthonormalColumns) {
  test::for_each_target([](const std::string& target) {
    for (const int rank : kPowerSgdRanks) {
      for (const int64_t rows : {1, 2, 3, 4, 7, 33, 64, 255, 257, 1003, 20011})
        test::check_orthonormal(kMath, rows, rank, rows % 2, target);
    }
  });
}

TEST(PowerSgdMathTest, DependentColumnsBecomeZeros) {
  test::for_each_target(
      [](const std::string& target) { test::check_dependent_columns(kMath, target); });
}

TEST(PowerSgdMathTest, ZeroColumnsBecomeNoise) { test::check_zero_columns(kMath, "on the CPU"); }

TEST(PowerSgdMathTest, WhatIsNotFiniteStaysSo) {
  test::for_each_target([](const std::string& target) { test::check_not_finite(kMath, target); });
}

TEST(PowerSgdMathTest, Reproducible) {
  for (const int rank : {1, 3, 4, 8, 32}) {
    const auto compute = [&] {
      std::vector<float> all = test::check_products(kMath, {613, 1003, rank}, 0, "threads");
      const std::vector<float> columns = test::check_orthonormal(kMath, 20011, rank, 0, "threads");
      all.insert(all.end(), columns.begin(), columns.end());
      return all;
    };
    test::expect_reproducible<float>(compute, "power_sgd");
    ScopedThreads one(1);
    const std::vector<float> first = compute();
    ScopedThreads five(5);
    test::expect_same_bits(first, compute(), "power_sgd on 5 threads");
  }
}

}  // namespace
}  // namespace lockstep::test

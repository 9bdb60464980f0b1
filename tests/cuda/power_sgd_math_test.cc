// Catches: a row, column or term that is lost or counted twice at the borders of blocks, strips and
// groups of ranks; a missing barrier; an address that no vector may be read from; columns that are
// not orthonormal, or noise where one depends on others; NaN that is lost.

#include "runtime/cuda/flat/power_sgd.h"

#include "runtime/cuda/flat/orthonormalize.h"
#include "tests/fibers/kernel_test.h"
#include "tests/reference/power_sgd_checks.h"

namespace lockstep::test {
namespace {

using Shape = collectives::PowerSgdShape;

const PowerSgdMath kMath = {
    [](const float* m, const float* r, const Shape& s, float* l) {
      cuda::power_sgd_left(m, r, s, l, nullptr);
    },
    [](const float* m, const float* l, const Shape& s, float* r) {
      cuda::power_sgd_right(m, l, s, r, nullptr);
    },
    [](const float* l, const float* r, const Shape& s, float* m) {
      cuda::power_sgd_product(l, r, s, m, nullptr);
    },
    [](float* l, int64_t rows, int rank) { cuda::orthonormalize(l, rows, rank, nullptr); },
    [](float* m, const float* p, float factor, int64_t n) {
      cuda::power_sgd_subtract(m, p, factor, n, nullptr);
    },
    [](float* r, int64_t columns, int rank) {
      cuda::fill_zero_columns(r, columns, rank, nullptr);
    }};

TEST(CudaPowerSgdMathTest, Products) {
  for (const int rank : kPowerSgdRanks) {
    for (const Shape shape : {Shape{1, 1, rank},
                              Shape{3, 2, rank},
                              Shape{1, 300, rank},
                              Shape{70, 1, rank},
                              Shape{17, 129, rank},
                              Shape{67, 33, rank},
                              Shape{600, 12, rank},
                              // Strips of 16 and of 32 columns.
                              Shape{37, 1030, rank},
                              Shape{5, 4101, rank}}) {
      for (const int64_t offset : {0, 1}) {
        if (offset > 0 && shape.columns > 300) continue;
        test::for_each_order([&](const std::string& order) {
          return test::bytes_of(test::check_products(kMath, shape, offset, order));
        });
      }
    }
  }
}

TEST(CudaPowerSgdMathTest, OrthonormalColumns) {
  for (const int rank : kPowerSgdRanks) {
    for (const int64_t rows : {1, 3, 33, 64, 257, 1500}) {
      test::for_each_order([&](const std::string& order) {
        return test::bytes_of(test::check_orthonormal(kMath, rows, rank, rows % 2, order));
      });
    }
  }
}

TEST(CudaPowerSgdMathTest, DependentColumnsBecomeZeros) {
  test::check_dependent_columns(kMath, "on the host");
}

TEST(CudaPowerSgdMathTest, ZeroColumnsBecomeNoise) {
  test::check_zero_columns(kMath, "on the host");
}

TEST(CudaPowerSgdMathTest, WhatIsNotFiniteStaysSo) { test::check_not_finite(kMath, "on the host"); }

}  // namespace
}  // namespace lockstep::test

// Catches: squares that are added to other rows or columns, lost or counted twice where threads,
// tiles and pieces meet; a fixed-point square that is off; directions that are not the formula's.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/threads.h"
#include "runtime/cpu/flat/adafactor.h"
#include "tests/reference/factored.h"

namespace lockstep::test {
namespace {

TEST(FactoredKernels, HaveTheBitsOfPlainLoops) {
  for_each_target([](const std::string& target) {
    for (const int threads : {1, 3}) {
      set_compute_threads(threads);
      for (const FactoredShape& shape : kFactoredShapes) {
        const exec::FactoredStep step = factored_step(shape);
        for_each_piece(shape, [&](int64_t first, int64_t elements) {
          FactoredArrays fast(shape), plain(shape);
          cpu::add_factored_squares(fast.piece(first, elements), step);
          cpu::factored_directions(fast.piece(first, elements), step);
          factored_reference(plain.piece(first, elements), step);
          const std::string what = target + ", " + std::to_string(shape.elements()) +
                                   " elements, from " + std::to_string(first);
          expect_same_bits(plain.gradients, fast.gradients, what);
          for (int64_t i = 0; i < shape.averages(); ++i) {
            ASSERT_EQ(fast.high[i], plain.high[i]) << what << ", sum " << i;
            ASSERT_EQ(fast.low[i], plain.low[i]) << what << ", sum " << i;
          }
        });
      }
    }
    set_compute_threads(1);
  });
}

// A square is exact up to 2^-33 units, of which the squares of all gradients have at most 2^51.
TEST(FactoredKernels, SquaresKeepTheirBits) {
  for (const double norm : {1e-12, 0.37, 1.0, 5e10}) {
    const double units = exec::units_for(norm);
    EXPECT_LT(norm * norm * units, 0x1p51);
    EXPECT_GE(norm * norm * units, 0x1p49);
    for (const double part : {1.0, 0.3, 1e-3, 1e-8, 1e-12}) {
      const auto g = static_cast<float>(norm * part);
      const exec::FixedPoint square = exec::fixed_square(g, units);
      EXPECT_NEAR(exec::fixed_value(square.high, square.low, units),
                  static_cast<double>(g) * g,
                  0x1p-33 / units + 0x1p-52 * g * g)
          << norm << " " << part;
    }
  }
}

}  // namespace
}  // namespace lockstep::test

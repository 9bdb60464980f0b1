// Catches: iterations that are not Muon's, on matrices with more rows than columns and fewer; a
// workspace that is too small or depends on the threads in its bits; NaN from a matrix of zeros.

#include <gtest/gtest.h>

#include "runtime/cpu/backend.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/newton_schulz.h"

namespace lockstep::test {
namespace {

std::vector<float> orthogonal(const std::vector<float>& from, const exec::NewtonSchulz& shape) {
  const auto backend = cpu::make_backend();
  Guarded<float> matrix(shape.elements());
  matrix.assign(from);
  Guarded<std::byte> workspace(
      static_cast<int64_t>(backend->ops().newton_schulz_bytes(shape.rows, shape.columns)));
  backend->newton_schulz(matrix.data(), shape, workspace.data());
  return matrix.copy();
}

std::vector<float> random_matrix(const exec::NewtonSchulz& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  test::fill_uniform(values, -1, 1, static_cast<uint64_t>(shape.rows * 1000 + shape.columns));
  return values;
}

TEST(NewtonSchulz, FollowsTheFormula) {
  test::for_each_target([&](const std::string& target) {
    for (const auto& [rows, columns] : {std::pair(2, 2), {3, 50}, {50, 3}, {33, 33}, {40, 17}}) {
      for (const int iterations : {1, 2, 5}) {
        const exec::NewtonSchulz shape = {rows, columns, iterations, 0.75f};
        const std::vector<float> from = random_matrix(shape);
        test::expect_close(
            orthogonal(from, shape),
            test::newton_schulz_reference(test::to_double(from), shape),
            test::newton_schulz_tolerance(shape),
            std::to_string(rows) + " x " + std::to_string(columns) + " on " + target);
      }
    }
  });
}

// All singular values come close to 1: the polynomial's fixed interval is about 0.7 to 1.2.
TEST(NewtonSchulz, RowsBecomeNearlyOrthonormal) {
  const exec::NewtonSchulz shape = {16, 300, 5, 1};
  const std::vector<float> result = orthogonal(random_matrix(shape), shape);
  for (int64_t a = 0; a < shape.rows; ++a) {
    for (int64_t b = 0; b < shape.rows; ++b) {
      double dot = 0;
      for (int64_t k = 0; k < shape.columns; ++k)
        dot += static_cast<double>(result[static_cast<size_t>(a * shape.columns + k)]) *
               result[static_cast<size_t>(b * shape.columns + k)];
      EXPECT_NEAR(dot, a == b ? 1 : 0, 0.5) << a << ", " << b;
    }
  }
}

// What the matrix is multiplied with does not matter, powers of two not for a bit.
TEST(NewtonSchulz, SizeDoesNotMatter) {
  const exec::NewtonSchulz shape = {9, 30, 5, 1};
  std::vector<float> small = random_matrix(shape), large = small;
  for (float& value : large) value *= 1024;
  test::expect_same_bits(orthogonal(small, shape), orthogonal(large, shape), "1024 times as large");
}

TEST(NewtonSchulz, ZerosStayZeros) {
  const exec::NewtonSchulz shape = {4, 6, 5, 1};
  const std::vector<float> zeros(24, 0.0f);
  EXPECT_EQ(orthogonal(zeros, shape), zeros);
}

TEST(NewtonSchulz, SameBitsOnAnyThreads) {
  const exec::NewtonSchulz shape = {150, 260, 3, 1};
  const std::vector<float> from = random_matrix(shape);
  test::expect_reproducible<float>([&] { return orthogonal(from, shape); }, "newton_schulz");
}

}  // namespace
}  // namespace lockstep::test

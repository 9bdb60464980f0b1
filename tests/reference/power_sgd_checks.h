#pragma once
// What every implementation of the arithmetic of PowerSGD is held to. Each check returns what was
// computed: its bits must not depend on threads.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/reference/kernel_test.h"
#include "tests/reference/power_sgd.h"

namespace lockstep::test {

// The methods of PowerSgdProducts.
struct PowerSgdMath {
  using Product =
      std::function<void(const float*, const float*, const collectives::PowerSgdShape&, float*)>;
  Product left, right, product;
  std::function<void(float* left, int64_t rows, int rank)> orthonormalize;
  std::function<void(float* matrix, const float* product, float factor, int64_t n)> subtract;
  std::function<void(float* right, int64_t columns, int rank)> fill_zero_columns;
};

inline constexpr int kPowerSgdRanks[] = {1, 2, 3, 4, 5, 8, 13, 32};

inline std::string name_of(const collectives::PowerSgdShape& shape) {
  return fmt::format("{} x {}, rank {}", shape.rows, shape.columns, shape.rank);
}

// Matrix and factors of random numbers, each `offset` elements off an aligned address.
struct PowerSgdArrays {
  PowerSgdArrays(const collectives::PowerSgdShape& shape, int64_t offset)
      : matrix(shape.rows * shape.columns, offset),
        left(shape.rows * shape.rank, offset),
        right(shape.columns * shape.rank, offset) {
    fill_uniform(matrix, -1, 1, 1);
    fill_uniform(left, -1, 1, 2);
    fill_uniform(right, -1, 1, 3);
  }
  Guarded<float> matrix, left, right;
};

// Within what the roundings of a sum of n terms can amount to, none of which is of more than the
// sum of the terms' sizes; and no more than a thousand of them follow one another. That is less
// than one of some thousands of terms.
inline void expect_sums(const Guarded<float>& actual,
                        const std::vector<double>& expected,
                        const std::vector<double>& sizes,
                        int64_t n,
                        const std::string& what) {
  const double roundings = static_cast<double>(std::min<int64_t>(n, 1000) + 1) * kEps / 2;
  expect_close(
      actual, expected, [&](int64_t i) { return roundings * sizes[static_cast<size_t>(i)]; }, what);
}

inline std::vector<float> check_products(const PowerSgdMath& math,
                                         const collectives::PowerSgdShape& shape,
                                         int64_t offset,
                                         const std::string& where) {
  const std::string what = name_of(shape) + ", " + where;
  PowerSgdArrays in(shape, offset), out(shape, offset);
  const std::vector<double> matrix = to_double(in.matrix), left = to_double(in.left),
                            right = to_double(in.right);
  const auto check = [&](const auto& run,
                         const auto& reference,
                         auto& a,
                         auto& b,
                         auto& to,
                         int64_t n,
                         const char* name) {
    std::fill(to.begin(), to.end(), std::numeric_limits<float>::quiet_NaN());
    run(a.data(), b.data(), shape, to.data());
    expect_sums(to,
                reference(to_double(a), to_double(b), shape),
                reference(magnitudes(to_double(a)), magnitudes(to_double(b)), shape),
                n,
                name + (": " + what));
  };
  check(math.left, power_sgd_left, in.matrix, in.right, out.left, shape.columns, "left");
  check(math.right, power_sgd_right, in.matrix, in.left, out.right, shape.rows, "right");
  check(math.product, power_sgd_product, in.left, in.right, out.matrix, shape.rank, "product");
  std::vector<float> results = out.left.copy();
  results.insert(results.end(), out.right.begin(), out.right.end());
  results.insert(results.end(), out.matrix.begin(), out.matrix.end());

  const float factor = 0.37f;
  math.subtract(in.matrix.data(), out.matrix.data(), factor, in.matrix.size());
  std::vector<double> expected = matrix;
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] -= static_cast<double>(factor) * out.matrix[static_cast<int64_t>(i)];
  // Two roundings, where there is no fused one: of numbers up to 1 + 0.37 * rank.
  expect_close(in.matrix, expected, kEps * (1 + shape.rank), "subtract: " + what);
  results.insert(results.end(), in.matrix.begin(), in.matrix.end());
  return results;
}

// Each column of `result` has norm 1 or is zero, they are at right angles, and what each column of
// `original` is but for its parts along them is next to nothing.
inline void expect_orthonormal(const std::vector<float>& original,
                               const std::vector<float>& result,
                               int rank,
                               const std::string& what) {
  const auto stride = static_cast<size_t>(rank);
  const size_t rows = original.size() / stride;
  const auto product = [&](const std::vector<float>& a, size_t k, size_t l) {
    double sum = 0;
    for (size_t i = 0; i < rows; ++i)
      sum += static_cast<double>(a[i * stride + k]) * result[i * stride + l];
    return sum;
  };
  for (size_t k = 0; k < stride; ++k) {
    const double norm = std::sqrt(product(result, k, k));
    if (norm != 0) {
      EXPECT_NEAR(norm, 1, 4 * kEps) << what << ", column " << k;
    }
    // What cancellation leaves is at least 1e-4 of a column whose elements are rounded to floats,
    // once for each of those before it.
    for (size_t l = 0; l < k; ++l)
      EXPECT_NEAR(product(result, k, l), 0, 1e4 * kEps * rank) << what << ", " << k << " by " << l;

    double whole = 0, rest = 0;
    std::vector<double> along;
    for (size_t l = 0; l <= k; ++l) along.push_back(product(original, k, l));
    for (size_t i = 0; i < rows; ++i) {
      double x = original[i * stride + k];
      whole += x * x;
      for (size_t l = 0; l <= k; ++l) x -= along[l] * result[i * stride + l];
      rest += x * x;
    }
    EXPECT_LE(std::sqrt(rest), 1.01e-4 * std::sqrt(whole)) << what << ", column " << k;
  }
}

inline std::vector<float> check_orthonormal(
    const PowerSgdMath& math, int64_t rows, int rank, int64_t offset, const std::string& where) {
  const std::string what = fmt::format("{} rows, rank {}, {}", rows, rank, where);
  Guarded<float> left(rows * rank, offset);
  fill_uniform(left, -1, 1, 4);
  const std::vector<float> original = left.copy();
  math.orthonormalize(left.data(), rows, rank);
  expect_orthonormal(original, left.copy(), rank, what);
  // Columns of many random numbers are nearly at right angles: little is lost by rounding.
  if (rows >= 8 * rank)
    expect_close(left, orthonormal(to_double(original), rank), 4 * kEps * rank, what);
  return left.copy();
}

// Columns that are zero, or multiples or sums of those before them, become zeros; those of very
// large and very small numbers do not.
inline void check_dependent_columns(const PowerSgdMath& math, const std::string& what) {
  constexpr int64_t kRows = 300;
  constexpr int kRank = 8;
  Guarded<float> left(kRows * kRank);
  fill_uniform(left, -1, 1, 5);
  for (int64_t i = 0; i < kRows; ++i) {
    float* const x = left.data() + i * kRank;
    x[0] = 0;
    x[2] = 3 * x[1];
    x[3] *= 1e25f;
    x[4] *= 1e-25f;
    x[5] = x[1] + 1e-25f * x[3];
    x[6] = x[1] + 1e-2f * x[6];
    x[7] *= 1e-36f;
  }
  const std::vector<float> original = left.copy();
  math.orthonormalize(left.data(), kRows, kRank);
  expect_orthonormal(original, left.copy(), kRank, what);
  for (int k = 0; k < kRank; ++k) {
    bool zero = true;
    for (int64_t i = 0; i < kRows; ++i) zero = zero && left[i * kRank + k] == 0;
    EXPECT_EQ(zero, k == 0 || k == 2 || k == 5) << what << ", column " << k;
  }

  Guarded<float> zeros(kRows * kRank);
  std::fill(zeros.begin(), zeros.end(), 0.0f);
  math.orthonormalize(zeros.data(), kRows, kRank);
  for (const float x : zeros) ASSERT_EQ(x, 0) << what;
}

// Zeros, and nothing else, become noise, with none of it zero all along.
inline void check_zero_columns(const PowerSgdMath& math, const std::string& what) {
  for (const int rank : {1, 3, 4, 32}) {
    for (const int64_t columns : {1, 7, 300}) {
      Guarded<float> right(columns * rank);
      fill_uniform(right, 1, 2, 5);
      for (int64_t i = 0; i < right.size(); ++i) {
        if (i % rank == rank / 2 || i % rank == 0) right[i] = 0;
        if (i % rank == 1 && i / rank + 1 < columns) right[i] = 0;
      }
      const std::vector<float> before = right.copy();
      math.fill_zero_columns(right.data(), columns, rank);
      for (int64_t i = 0; i < right.size(); ++i) {
        const bool zeros = i % rank == rank / 2 || i % rank == 0;
        ASSERT_EQ(right[i],
                  zeros ? collectives::power_sgd_noise(i) : before[static_cast<size_t>(i)])
            << what << ", rank " << rank << ", element " << i;
        EXPECT_LE(std::abs(collectives::power_sgd_noise(i)), 1);
      }
    }
  }
  EXPECT_NE(collectives::power_sgd_noise(0), collectives::power_sgd_noise(1));
}

// NaN and infinity show in all that is computed of them, and nowhere else.
inline void check_not_finite(const PowerSgdMath& math, const std::string& what) {
  for (const int rank : {1, 3, 4, 8, 11}) {
    const collectives::PowerSgdShape shape{21, 37, rank};
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const int64_t at : {int64_t{0}, int64_t{18 * 37 + 36}, int64_t{20 * 37 + 5}}) {
        PowerSgdArrays in(shape, 0), out(shape, 0);
        in.matrix[at] = bad;
        math.left(in.matrix.data(), in.right.data(), shape, out.left.data());
        math.right(in.matrix.data(), in.left.data(), shape, out.right.data());
        for (int64_t i = 0; i < out.left.size(); ++i)
          ASSERT_EQ(std::isfinite(out.left[i]), i / rank != at / 37) << what << " left " << i;
        for (int64_t i = 0; i < out.right.size(); ++i)
          ASSERT_EQ(std::isfinite(out.right[i]), i / rank != at % 37) << what << " right " << i;
      }
      const int64_t row = 7, column = rank / 2;
      PowerSgdArrays in(shape, 0), out(shape, 0);
      in.left[row * rank + column] = bad;
      math.product(in.left.data(), in.right.data(), shape, out.matrix.data());
      for (int64_t i = 0; i < out.matrix.size(); ++i)
        ASSERT_EQ(std::isfinite(out.matrix[i]), i / 37 != row) << what << " product " << i;
      math.orthonormalize(in.left.data(), shape.rows, rank);
      for (int64_t k = 0; k < rank; ++k) {
        bool finite = true;
        for (int64_t i = 0; i < shape.rows; ++i)
          finite = finite && std::isfinite(in.left[i * rank + k]);
        EXPECT_EQ(finite, k < column) << what << ", rank " << rank << ", column " << k;
      }
      EXPECT_TRUE(std::isnan(in.left[row * rank + column])) << what;
    }
  }
}

}  // namespace lockstep::test

// Catches: elements lost at the end of an array or where it is misaligned, a tree of sums in
// another order than the CPU's, an activation or its derivative that is wrong, a dropout mask
// unlike the CPU's.

#include "runtime/cuda/ops/elementwise.h"

#include "runtime/cpu/flat/content_hash.h"
#include "runtime/cpu/ops/dropout.h"
#include "runtime/cpu/ops/elementwise.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/flat/content_hash.h"
#include "runtime/cuda/ops/activations.h"
#include "runtime/cuda/ops/dropout.h"
#include "tests/fibers/kernel_test.h"
#include "tests/reference/activations.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

template <typename T>
class CudaElementwiseTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaElementwiseTest, test::StoredTypes);

TYPED_TEST(CudaElementwiseTest, AddAndCastRoundOnce) {
  using T = TypeParam;
  for (int64_t n : {1, 7, 2048, 5003}) {
    for (int64_t offset : {0, 1}) {
      Guarded<T> a(n, offset), b(n, offset), sum(n, offset);
      test::fill_stored(a, -1, 1, 1);
      test::fill_stored(b, -1, 1, 2);
      cuda::add<T>(a.data(), b.data(), sum.data(), n, nullptr);
      std::vector<T> expected;
      for (int64_t i = 0; i < n; ++i)
        expected.push_back(round_to<T>(to_float(a[i]) + to_float(b[i])));
      EXPECT_EQ(test::bytes_of(expected), test::bytes_of(sum)) << n << " + " << offset;
      if constexpr (!std::is_same_v<T, float>) {
        Guarded<float> wide(n, offset);
        test::fill_uniform(wide, -3, 3, 3);
        cuda::cast(wide.data(), sum.data(), n, nullptr);
        for (int64_t i = 0; i < n; ++i) expected[static_cast<size_t>(i)] = round_to<T>(wide[i]);
        EXPECT_EQ(test::bytes_of(expected), test::bytes_of(sum)) << n << " + " << offset;
      }
    }
  }
}

TYPED_TEST(CudaElementwiseTest, WidensExactly) {
  using T = TypeParam;
  for (int64_t n : {1, 7, 2048}) {
    for (bool accumulate : {false, true}) {
      Guarded<T> from(n);
      Guarded<float> to(n);
      test::fill_stored(from, -1, 1, 1);
      test::fill_uniform(to, -3, 3, 2);
      std::vector<float> expected = to.copy();
      for (int64_t i = 0; i < n; ++i) {
        float& sum = expected[static_cast<size_t>(i)];
        sum = (accumulate ? sum : 0.0f) + to_float(from[i]);
      }
      cuda::widen<T>(from.data(), accumulate, to.data(), n, nullptr);
      EXPECT_EQ(test::bytes_of(expected), test::bytes_of(to)) << n;
    }
  }
}

constexpr Activation kActivations[] = {Activation::kNone,
                                       Activation::kRelu,
                                       Activation::kGeluTanh,
                                       Activation::kGeluErf,
                                       Activation::kSilu,
                                       Activation::kTanh};

TYPED_TEST(CudaElementwiseTest, ActivationsMatchDoublePrecision) {
  using T = TypeParam;
  const int64_t n = 1203;
  for (Activation activation : kActivations) {
    const std::string name = "activation " + std::to_string(static_cast<int>(activation));
    Guarded<T> x(n), y(n), d_y(n), d_x(n);
    test::fill_stored(x, -9, 9, 1);
    test::fill_stored(d_y, -1, 1, 2);
    cuda::activation_forward<T>(activation, x.data(), y.data(), n, nullptr);
    const T* saved = saves_pre_activation(activation) ? x.data() : y.data();
    cuda::activation_backward<T>(activation, d_y.data(), saved, d_x.data(), n, nullptr);
    for (int64_t i = 0; i < n; ++i) {
      const double at = to_float(x[i]), value = test::activation_value(activation, at);
      const double slope = test::activation_derivative(activation, at) * to_float(d_y[i]);
      const double rounding = test::kSpacing<T> * std::abs(value);
      ASSERT_NEAR(to_float(y[i]), value, 16 * kEps * (1 + std::abs(at)) + rounding) << name;
      // Where the derivative is made of the rounded output, its error enters too.
      const double from_output = saves_pre_activation(activation) ? 0 : 2 * test::kSpacing<T>;
      ASSERT_NEAR(
          to_float(d_x[i]),
          slope,
          64 * kEps * (1 + std::abs(at)) + test::kSpacing<T> * std::abs(slope) + from_output)
          << name << " at " << at;
    }
  }
}

// A diverged run must show, as it does on the CPU.
TYPED_TEST(CudaElementwiseTest, ActivationsHideNoNaN) {
  using T = TypeParam;
  for (Activation activation : kActivations) {
    Guarded<T> x(9), y(9);  // the last one alone, not in a vector
    test::fill_stored(x, -1, 1, 1);
    for (const int64_t i : {3, 8}) x[i] = round_to<T>(NAN);
    cuda::activation_forward<T>(activation, x.data(), y.data(), 9, nullptr);
    for (int64_t i = 0; i < 9; ++i)
      EXPECT_EQ(std::isnan(to_float(y[i])), i == 3 || i == 8)
          << static_cast<int>(activation) << " at " << i;
  }
}

TYPED_TEST(CudaElementwiseTest, DropoutHasTheMaskOfTheCpu) {
  using T = TypeParam;
  const RngStream random{.seed = 5, .step = 2, .lane = 3, .purpose = kRngDropout | 7};
  for (int64_t n : {1, 30, 2055}) {
    for (int64_t offset : {0, 1}) {
      Guarded<T> x(n, offset), y(n, offset);
      test::fill_stored(x, 0.5, 1, 1);
      const LaneContext lane{.seed = random.seed, .step = random.step, .lane = random.lane};
      cuda::dropout<T>(x.data(), y.data(), n, 0.3f, &lane, random.purpose, nullptr);
      std::vector<float> wide, expected(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) wide.push_back(to_float(x[i]));
      cpu::dropout_forward(wide.data(), expected.data(), n, 0.3f, random);
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(to_float(round_to<T>(expected[static_cast<size_t>(i)])), to_float(y[i])) << i;
    }
  }
}

TYPED_TEST(CudaElementwiseTest, ColumnSumMatchesDoublePrecisionInAnyOrder) {
  using T = TypeParam;
  struct Sizes {
    int64_t rows, columns, stride;
  };
  for (const Sizes& sizes : std::vector<Sizes>{{1, 1, 1},
                                               {5, 33, 33},
                                               {5, 33, 40},
                                               {70, 64, 64},
                                               {70, 64, 67},
                                               {301, 1032, 1040},
                                               {4200, 3, 8},
                                               {9000, 16, 16}}) {
    test::for_each_order([&](const std::string& order) {
      const auto [rows, columns, stride] = sizes;
      Guarded<T> x(rows * stride);
      Guarded<float> out(columns),
          workspace(static_cast<int64_t>(cuda::column_sum_workspace_bytes(rows, columns) / 4));
      test::fill_stored(x, -1, 1, 1);
      test::fill_uniform(out, -1, 1, 2);
      std::vector<double> expected = test::to_double(out);
      for (int64_t i = 0; i < rows * columns; ++i)
        expected[static_cast<size_t>(i % columns)] +=
            to_float(x[i / columns * stride + i % columns]);
      cuda::column_sum<T>(
          x.data(), rows, columns, stride, true, out.data(), workspace.data(), nullptr);
      test::expect_close(out, expected, kEps * static_cast<double>(rows + 4), "sum, " + order);
      return test::bytes_of(out);
    });
  }
}

// From one block to more blocks than there are sums to keep, from the end of a chunk to its middle.
TEST(CudaSumTest, SquaresHaveTheBitsOfTheCpuInAnyOrder) {
  for (int64_t n : {0, 1, 64, 100, 16384, 16385, 50001}) {
    for (int64_t offset : {0, 1}) {
      test::for_each_order([&](const std::string& order) {
        Guarded<float> x(n, offset);
        test::fill_all_sizes(x, static_cast<uint64_t>(n));
        ExactSum expected, sum;
        std::vector<ExactSum> workspace(cuda::kSquaresBlocks);
        for (const int64_t count : {n, n / 2}) {
          cpu::add_squares(x.data(), count, &expected);
          cuda::add_squares(x.data(), count, workspace.data(), &sum, nullptr);
        }
        EXPECT_EQ(sum, expected) << n << ", " << order;
        return test::bytes_of(std::vector<ExactSum>{sum});
      });
    }
  }
}

TEST(CudaSumTest, SquaresOfManyBlocks) {
  const int64_t n = (cuda::kSquaresBlocks + 3) * cuda::kSquaresBlock + 77;
  std::vector<float> x(static_cast<size_t>(n));
  test::fill_uniform(x, -1, 1, 1);
  ExactSum expected, sum;
  std::vector<ExactSum> workspace(cuda::kSquaresBlocks);
  cpu::add_squares(x.data(), n, &expected);
  cuda::add_squares(x.data(), n, workspace.data(), &sum, nullptr);
  EXPECT_EQ(sum, expected);
}

TEST(CudaSumTest, SquaresThatAreNotFiniteShow) {
  std::vector<float> x(200, 1);
  ExactSum sum;
  x[130] = -std::numeric_limits<float>::infinity();
  cuda::add_squares(x.data(), 200, nullptr, &sum, nullptr);
  EXPECT_EQ(sum.value(), std::numeric_limits<double>::infinity());
  x[3] = std::numeric_limits<float>::quiet_NaN();
  cuda::add_squares(x.data(), 200, nullptr, &sum, nullptr);
  EXPECT_TRUE(std::isnan(sum.value()));
}

// The hash of a slice is that of the CPU, and slices add up to the whole.
TYPED_TEST(CudaElementwiseTest, ContentHashIsThatOfTheCpu) {
  using T = TypeParam;
  for (int64_t n : {1, 7, 1000, 70003}) {
    for (int64_t offset : {0, 1}) {
      Guarded<T> x(n, offset);
      test::fill_stored(x, -1, 1, 5);
      if (n > 100) x[100] = round_to<T>(std::numeric_limits<float>::infinity());
      if (n > 100) x[n - 1] = round_to<T>(std::numeric_limits<float>::quiet_NaN());
      std::vector<float> wide;
      for (int64_t i = 0; i < n; ++i) wide.push_back(to_float(x[i]));
      std::vector<ContentHash> workspace(cuda::kHashBlocks);
      const auto hash = [&](int64_t begin, int64_t end) {
        ContentHash out{1, 1};
        cuda::content_hash<T>(x.data() + begin,
                              end - begin,
                              10 + static_cast<uint64_t>(begin),
                              workspace.data(),
                              &out,
                              nullptr);
        return out;
      };
      const ContentHash expected = cpu::content_hash(wide.data(), n, 10), whole = hash(0, n);
      EXPECT_EQ(whole.sum, expected.sum) << n;
      EXPECT_EQ(whole.not_finite, expected.not_finite) << n;
      EXPECT_EQ(whole.not_finite, n > 100 ? 2u : 0u);
      if (n < 3) continue;
      const ContentHash left = hash(0, n / 3), right = hash(n / 3, n);
      EXPECT_EQ(left.sum + right.sum, whole.sum);
      std::swap(wide[0], wide[1]);  // the same numbers elsewhere are another content
      EXPECT_NE(cpu::content_hash(wide.data(), n, 10).sum, whole.sum);
    }
  }
}

}  // namespace
}  // namespace lockstep

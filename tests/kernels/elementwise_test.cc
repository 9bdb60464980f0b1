// Catches: a wrong sum at odd sizes or misaligned addresses, writes outside an array, sums of
// squares that depend on threads or vector width.

#include "runtime/cpu/elementwise.h"

#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;

constexpr int64_t kSizes[] = {1, 15, 17, 1003};

TEST(ElementwiseTest, AddAccumulateScaleFill) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : kSizes) {
      Guarded<float> a(n, 1), b(n, 2), out(n, 3);
      test::fill_uniform(a, -3, 3, 1);
      test::fill_uniform(b, -3, 3, 2);
      std::vector<float> sum(n), scaled(n);
      for (int64_t i = 0; i < n; ++i) {
        sum[i] = a[i] + b[i];
        scaled[i] = sum[i] * 0.3f;
      }
      cpu::add(a.data(), b.data(), out.data(), n);
      test::expect_same_bits(sum, out, "add, " + target);
      cpu::accumulate(b.data(), a.data(), n);
      test::expect_same_bits(sum, a, "accumulate, " + target);
      cpu::scale(out.data(), 0.3f, n);
      test::expect_same_bits(scaled, out, "scale, " + target);
      cpu::fill(out.data(), -1.5f, n);
      test::expect_same_bits(std::vector<float>(n, -1.5f), out, "fill, " + target);
    }
  });
}

TEST(ElementwiseTest, SumOfSquares) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : {0, 1, 15, 17, 4095, 4097, 50001}) {
      Guarded<float> x(n, 1);
      test::fill_uniform(x, -3, 3, n);
      long double expected = 0;
      for (float value : x) expected += static_cast<long double>(value) * value;
      Guarded<double> workspace(cpu::sum_of_squares_workspace_bytes(n) / sizeof(double));
      const double sum = cpu::sum_of_squares(x.data(), n, workspace.data());
      // 256 additions in a lane and 13 block sums, each half an ulp of a partial sum no larger than
      // the total.
      EXPECT_TRUE(std::abs(sum - static_cast<double>(expected)) <=
                  270 * 0x1p-53 * static_cast<double>(expected))
          << target << " n=" << n << ": " << sum;
    }
  });
}

TEST(ElementwiseTest, Reproducible) {
  const int64_t n = 100003;
  std::vector<float> x(n);
  test::fill_uniform(x, -3, 3, 7);
  std::vector<double> workspace(cpu::sum_of_squares_workspace_bytes(n) / sizeof(double));
  test::expect_reproducible<double>(
      [&] { return std::vector<double>{cpu::sum_of_squares(x.data(), n, workspace.data())}; },
      "sum_of_squares");
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> y(x);
        cpu::add(y.data(), x.data(), y.data(), n);
        cpu::scale(y.data(), 1 / 3.0f, n);
        cpu::fill(y.data() + n / 2, 2, n / 2);
        return y;
      },
      "elementwise");
}

TEST(ElementwiseTest, NanAndInfinityPassThrough) {
  std::vector<float> x(33, 1.0f);
  x[32] = std::numeric_limits<float>::quiet_NaN();
  double workspace = 0;
  EXPECT_TRUE(std::isnan(cpu::sum_of_squares(x.data(), 33, &workspace)));
  x[32] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(cpu::sum_of_squares(x.data(), 33, &workspace)));
}

}  // namespace
}  // namespace lockstep

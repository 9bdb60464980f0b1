// Catches: a wrong sum at odd sizes or misaligned addresses, writes outside an array, sums of
// squares that are in another order than the one promised, or depend on threads, vector width or on
// how they are cut.

#include "runtime/cpu/ops/elementwise.h"

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

// Chunk by chunk as exact_sum.h has it.
ExactSum squares_of(const float* x, int64_t n) {
  ExactSum sum;
  for (int64_t begin = 0; begin < n; begin += kSquaresChunk) {
    double squares[kSquaresChunk] = {};
    for (int64_t i = begin; i < std::min(begin + kSquaresChunk, n); ++i)
      squares[i - begin] = static_cast<double>(x[i]) * x[i];
    for (int64_t width = kSquaresChunk / 2; width > 0; width /= 2) {
      for (int64_t k = 0; k < width; ++k) squares[k] += squares[k + width];
    }
    sum.add(squares[0]);
  }
  return sum;
}

TEST(ElementwiseTest, AddSquares) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : {0, 1, 63, 64, 65, 4095, 4097, 50001}) {
      Guarded<float> x(n, 1);
      test::fill_all_sizes(x, n);
      ExactSum expected = squares_of(x.data(), n), sum;
      cpu::add_squares(x.data(), n, &sum);
      EXPECT_EQ(sum, expected) << target << " n=" << n;
      // In two calls, to a sum that holds something.
      const int64_t cut = n / 2 / kSquaresChunk * kSquaresChunk;
      expected += expected;
      cpu::add_squares(x.data() + cut, n - cut, &sum);
      cpu::add_squares(x.data(), cut, &sum);
      EXPECT_EQ(sum, expected) << target << " n=" << n;
    }
  });
}

TEST(ElementwiseTest, Reproducible) {
  const int64_t n = 100003;
  std::vector<float> x(n);
  test::fill_uniform(x, -3, 3, 7);
  test::expect_reproducible<uint64_t>(
      [&] {
        ExactSum sum;
        cpu::add_squares(x.data(), n, &sum);
        return std::vector<uint64_t>(std::begin(sum.words), std::end(sum.words));
      },
      "add_squares");
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
  ExactSum nan, infinite;
  cpu::add_squares(x.data(), 33, &nan);
  EXPECT_TRUE(std::isnan(nan.value()));
  x[32] = -std::numeric_limits<float>::infinity();
  cpu::add_squares(x.data(), 33, &infinite);
  EXPECT_EQ(infinite.value(), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace lockstep

// Catches: sums of squares that are in another order than the one promised, or depend on threads,
// vector width or on how they are cut.

#include "runtime/cpu/flat/squares.h"

#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

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

TEST(SquaresTest, AddUpChunkByChunk) {
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

// Catches: bits that are left out at the end of a chunk, an array or a thread's part.
TEST(SquaresTest, BitsAreSummedBesideTheSquares) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t n : {0, 1, 63, 64, 1000, 4097, 50001}) {
      Guarded<float> x(n, 1);
      test::fill_uniform(x, -1, 1, n);
      uint32_t expected = 0, bits = 5;
      for (int64_t i = 0; i < n; ++i) expected += std::bit_cast<uint32_t>(x[i]);
      ExactSum with, without;
      cpu::add_squares(x.data(), n, &with, &bits);
      cpu::add_squares(x.data(), n, &without);
      EXPECT_EQ(bits, expected + 5) << target << " n=" << n;
      EXPECT_EQ(with, without) << target << " n=" << n;
      EXPECT_EQ(cpu::bit_checksum(x.data(), n), expected) << target << " n=" << n;
    }
  });
}

// What 16 bits an element are sent as.
TEST(SquaresTest, BitsOfHalvesAreSummed) {
  test::for_each_target([&](const std::string& target) {
    for (const int64_t n : {0, 1, 15, 33, 70001}) {
      std::vector<uint16_t> x(static_cast<size_t>(n));
      uint32_t expected = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<uint16_t>(i * 40503 + 7);
        expected += x[i];
      }
      EXPECT_EQ(cpu::bit_checksum(x.data(), n), expected) << target << " n=" << n;
    }
  });
}

TEST(SquaresTest, Reproducible) {
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
}

TEST(SquaresTest, NanAndInfinityPassThrough) {
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
}  // namespace lockstep::test

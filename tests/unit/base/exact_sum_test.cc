// Catches: a square that is lost or rounded beside much larger ones, a sum that depends on the
// order of its parts, a word that overflows before the promised number of additions, a result
// rounded twice or to the wrong side, and NaN or infinity that goes unseen.
#include "runtime/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/base/int128.h"

namespace lockstep {
namespace {

constexpr double kLargestSquare = 0x1.fffffep127 * 0x1.fffffep127;
constexpr double kSmallestSquare = 0x1p-298;

ExactSum sum_of(const std::vector<double>& chunks) {
  ExactSum sum;
  for (const double chunk : chunks) sum.add(chunk);
  return sum;
}

TEST(ExactSum, OneChunkComesBackAsItIs) {
  for (const double chunk : {0.0,
                             kSmallestSquare,
                             3 * kSmallestSquare,
                             1.0,
                             0x1.fffffffffffffp-1,
                             0x1.23456789abcdfp-200,
                             kLargestSquare,
                             64 * kLargestSquare})
    EXPECT_EQ(sum_of({chunk}).value(), chunk);
  // At every place in a word.
  for (int exponent = -298; exponent < 262; ++exponent) {
    const double chunk = std::ldexp(1.0, exponent);
    EXPECT_EQ(sum_of({chunk}).value(), chunk) << exponent;
    if (exponent < -298 + 52) continue;
    const double full = std::ldexp(0x1.fffffffffffffp0, exponent);
    EXPECT_EQ(sum_of({full}).value(), full) << exponent;
  }
}

using Wide = UInt128;

// Against 128-bit integers: chunks that are multiples of 2^-40 below 2^60.
TEST(ExactSum, IsThatOfIntegers) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    ExactSum sum;
    Wide integer = 0;
    const int chunks = 1 + static_cast<int>(random() % 300);
    for (int i = 0; i < chunks; ++i) {
      const uint64_t mantissa = random() >> (11 + random() % 50);
      const int shift = static_cast<int>(random() % 48);
      sum.add(std::ldexp(static_cast<double>(mantissa), shift - 40));
      integer += static_cast<Wide>(mantissa) << shift;
    }
    // Rounded by hand, half to even.
    int zeros = 0;
    while (integer >> (127 - zeros) == 0 && zeros < 127) ++zeros;
    const int dropped = std::max(0, 128 - zeros - 53);
    auto kept = static_cast<uint64_t>(integer >> dropped);
    const Wide rest = integer - (static_cast<Wide>(kept) << dropped);
    const Wide half = dropped > 0 ? static_cast<Wide>(1) << (dropped - 1) : 0;
    if (dropped > 0 && (rest > half || (rest == half && kept % 2 == 1))) ++kept;
    EXPECT_EQ(sum.value(), std::ldexp(static_cast<double>(kept), dropped - 40)) << trial;
  }
}

TEST(ExactSum, RoundsOnceAndHalfToEven) {
  // 1 + 2^-53 lies half-way between 1 and the next double: what follows decides, however small.
  EXPECT_EQ(sum_of({1, 0x1p-53}).value(), 1);
  EXPECT_EQ(sum_of({1, 0x1p-53, kSmallestSquare}).value(), 1 + 0x1p-52);
  EXPECT_EQ(sum_of({1 + 0x1p-52, 0x1p-53}).value(), 1 + 0x1p-51);
  EXPECT_EQ(sum_of({1, 0x1p-54, 0x1p-55, kSmallestSquare}).value(), 1);
  EXPECT_EQ(sum_of({0x1.fffffffffffffp0, 0x1p-53}).value(), 2);
  // As often as a sum of doubles would never change.
  ExactSum sum = sum_of({0x1p60});
  for (int i = 0; i < 4096; ++i) sum.add(0x1p-4);
  EXPECT_EQ(sum.value(), 0x1p60 + 256);
}

TEST(ExactSum, AnyOrderAndAnyPartsGiveTheSame) {
  std::mt19937_64 random(2);
  std::vector<double> chunks;
  for (int i = 0; i < 3000; ++i)
    chunks.push_back(
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 500) - 298));
  const ExactSum all = sum_of(chunks);
  for (int trial = 0; trial < 10; ++trial) {
    std::shuffle(chunks.begin(), chunks.end(), random);
    EXPECT_EQ(sum_of(chunks), all);
    const auto cut = chunks.begin() + static_cast<ptrdiff_t>(random() % chunks.size());
    ExactSum parts = sum_of({cut, chunks.end()});
    parts += sum_of({chunks.begin(), cut});
    EXPECT_EQ(parts, all);
    EXPECT_EQ(parts.value(), all.value());
  }
}

// 2^32 additions, by doubling: each of them fills its words as far as one can.
TEST(ExactSum, HasRoomForAsManyChunksAsItPromises) {
  for (int exponent = -298 + 52; exponent < 262; ++exponent) {
    const double chunk = std::ldexp(0x1.fffffffffffffp0, exponent);
    ExactSum sum = sum_of({chunk});
    for (int i = 0; i < 32; ++i) sum += ExactSum(sum);
    EXPECT_EQ(sum.value(), std::ldexp(chunk, 32)) << exponent;
  }
  ExactSum full;  // all words at once
  for (int word = 0; word < ExactSum::kLimbs; ++word) full.words[word] = 0xFFFFFFFFu;
  for (int i = 0; i < 32; ++i) full += ExactSum(full);
  EXPECT_EQ(full.value(), std::ldexp(1.0, 32 * ExactSum::kLimbs + 32 + ExactSum::kLowestExponent));
}

TEST(ExactSum, NanAndInfinityShow) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(sum_of({1, infinity, 2}).value(), infinity);
  EXPECT_EQ(sum_of({infinity, infinity}).value(), infinity);
  for (const double bad : {nan, -nan}) {
    EXPECT_TRUE(std::isnan(sum_of({bad, 1}).value()));
    EXPECT_TRUE(std::isnan(sum_of({infinity, bad}).value()));
    ExactSum parts = sum_of({1});
    parts += sum_of({bad});
    EXPECT_TRUE(std::isnan(parts.value()));
  }
  EXPECT_EQ(ExactSum{}.value(), 0);
}

}  // namespace
}  // namespace lockstep

#pragma once
// Sums of squares of floats that do not depend on the order of addition: the bits are the same
// however the floats are divided among calls, threads and ranks, as long as no chunk is split.
//
// The squares of a chunk are summed in double precision, in which each square is exact, in one
// fixed order: element e + element e + 32, then + 16, + 8, + 4, + 2, + 1. The sums of the chunks
// are added exactly, in integers.

#include <bit>
#include <cstdint>
#include <limits>

#include "runtime/base/host_device.h"

namespace lockstep {

// The number of consecutive floats in a chunk. A shorter chunk at the end is summed as if zeros
// followed.
inline constexpr int64_t kSquaresChunk = 64;

// A fixed-point number of 64-bit words. Each word weighs 2^32 times as much as the one before. The
// sum of a chunk adds less than 2^32 to each of three words. So there is room for 2^32 chunks, of
// all ranks together, before any word overflows, and carries are propagated only at the end.
struct ExactSum {
  // The exponent of the lowest bit of the first word. It is small enough for every sum of squares
  // of floats: the smallest square is 2^-298, and the last bit of a double of that size weighs
  // 2^-350. The largest square is below 2^256, and a chunk's sum is below 2^262.
  static constexpr int kLowestExponent = -350;
  static constexpr int kLimbs = 20;           // words of the number
  static constexpr int kInfinities = kLimbs;  // index of the count of infinite chunks
  static constexpr int kNans = kLimbs + 1;    // index of the count of NaN chunks
  static constexpr int kWords = kLimbs + 2;
  uint64_t words[kWords] = {};

  void add(double chunk);
  ExactSum& operator+=(const ExactSum& other) {
    for (int i = 0; i < kWords; ++i) words[i] += other.words[i];
    return *this;
  }
  // The sum, rounded once to the nearest double; NaN or infinite if a sum of doubles would be.
  LOCKSTEP_HD double value() const;
  bool operator==(const ExactSum&) const = default;
};

// What the sum of a chunk adds to three consecutive words.
struct ExactParts {
  int first;
  uint64_t at[3];
};

LOCKSTEP_HD ExactParts exact_parts(double chunk) {
  const uint64_t bits = std::bit_cast<uint64_t>(chunk);
  const uint64_t fraction = bits & 0xFFFFFFFFFFFFFu;
  const int exponent = static_cast<int>(bits >> 52) & 0x7FF;
  if (exponent == 0x7FF)
    return {(fraction == 0 ? ExactSum::kInfinities : ExactSum::kNans) - 2, {0, 0, 1}};
  if (exponent == 0) return {0, {0, 0, 0}};
  const uint64_t mantissa = fraction | 0x10000000000000u;
  // The position of the lowest bit of the mantissa.
  const int position = exponent - 1075 - ExactSum::kLowestExponent;
  const int shift = position % 32;
  return {position / 32,
          {(mantissa << shift) & 0xFFFFFFFFu,
           (mantissa >> (32 - shift)) & 0xFFFFFFFFu,
           (mantissa >> 32) >> (32 - shift)}};
}

inline void ExactSum::add(double chunk) {
  const ExactParts parts = exact_parts(chunk);
  for (int i = 0; i < 3; ++i) words[parts.first + i] += parts.at[i];
}

LOCKSTEP_HD int leading_zeros(uint64_t x) {
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(x));
#else
  return std::countl_zero(x);
#endif
}

LOCKSTEP_HD double ExactSum::value() const {
  if (words[kNans] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (words[kInfinities] > 0) return std::numeric_limits<double>::infinity();
  // The number in base 2^32, with carries propagated.
  uint64_t digits[kLimbs + 1], carry = 0;
  for (int i = 0; i < kLimbs; ++i) {
    const uint64_t sum = words[i] + carry;
    digits[i] = sum & 0xFFFFFFFFu;
    carry = sum >> 32;
  }
  digits[kLimbs] = carry;
  int top = kLimbs;
  while (top > 0 && digits[top] == 0) --top;
  const auto digit = [&](int i) { return i >= 0 ? digits[i] : 0; };
  // The first 64 bits of the number. The last of them is set if any bit after them is set (a sticky
  // bit), so that converting them rounds exactly as converting all bits would.
  uint64_t first = digit(top) << 32 | digit(top - 1);
  if (first == 0) return 0;
  const int zeros = leading_zeros(first);
  const uint64_t next = digit(top - 2) << zeros;
  bool more = (next & 0xFFFFFFFFu) != 0;
  for (int i = 0; i < top - 2; ++i) more = more || digits[i] != 0;
  first = first << zeros | next >> 32 | (more ? 1 : 0);
  // Exact: no sum of squares of floats is as small as a double that is not normal.
  const int exponent = kLowestExponent + 32 * (top - 1) - zeros;
  return static_cast<double>(first) *
         std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

}  // namespace lockstep

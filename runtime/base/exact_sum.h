#pragma once
// Sums of squares of floats that no order of addition changes: the same bits however the floats are
// divided among calls, threads and ranks, as long as no chunk is cut.
//
// The squares of a chunk are summed in double precision, where each of them is exact, in one fixed
// order: element e + element e + 32, then + 16, + 8, + 4, + 2, + 1. The chunks' sums are added
// exactly, in integers.

#include <bit>
#include <cstdint>

#include "runtime/base/host_device.h"

namespace lockstep {

// Floats that follow each other; fewer at an end count as if zeros followed.
inline constexpr int64_t kSquaresChunk = 64;

// A fixed-point number of 64-bit words, each of which counts 2^32 times what the one before counts.
// A chunk's sum adds less than 2^32 to each of three words: there is room for 2^32 chunks, of all
// ranks together, and nothing is carried before the end.
struct ExactSum {
  // Of the first word. The last bit of a double that is a sum of squares of floats counts at least
  // as much: the smallest is 2^-298, 52 bits above it. The largest is below 2^262.
  static constexpr int kLowestExponent = -350;
  static constexpr int kLimbs = 20;           // words of the number
  static constexpr int kInfinities = kLimbs;  // how many chunks were infinite
  static constexpr int kNans = kLimbs + 1;    // or not a number
  static constexpr int kWords = kLimbs + 2;
  uint64_t words[kWords] = {};

  void add(double chunk);
  ExactSum& operator+=(const ExactSum& other) {
    for (int i = 0; i < kWords; ++i) words[i] += other.words[i];
    return *this;
  }
  // Rounded once, to the nearest double; NaN or infinite as a sum of doubles would be.
  double value() const;
  bool operator==(const ExactSum&) const = default;
};

// What a chunk's sum adds to three words that follow each other.
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
  const int position = exponent - 1075 - ExactSum::kLowestExponent;  // of its last bit
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

}  // namespace lockstep

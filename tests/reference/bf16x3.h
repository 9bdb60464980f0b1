#pragma once
// The arithmetic of runtime/cpu/matmul/bf16x3.h, one number at a time: floats split into three
// bfloat16 numbers, and the sum of the products of two vectors of them. Behind it, what the tests
// of those products share.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/reference/kernel_test.h"

namespace lockstep::test {

// The float with the last bit that a bfloat16 of its size has: eight bits of mantissa, or multiples
// of 2^-133. `to_integer` rounds what lies before and behind that bit.
inline float to_bf16(float x, double (*to_integer)(double)) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  const int last_bit = std::max(exponent - 8, -133);
  return std::ldexp(static_cast<float>(to_integer(std::ldexp(double{x}, -last_bit))), last_bit);
}

// Floats turn into this by themselves. Of a float that is infinite or NaN, or rounds to infinity,
// some part is NaN.
struct SplitFloat {
  SplitFloat() = default;
  SplitFloat(float x) {
    part[0] = to_bf16(x, std::round);
    part[1] = to_bf16(x - part[0], std::round);
    part[2] = to_bf16(x - part[0] - part[1], std::trunc);
  }
  float part[3] = {0, 0, 0};
};

// Numbers below 2^-126 become zeros of the same sign.
inline float flush(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

inline float flushing_add(float x, float y) { return flush(flush(x) + flush(y)); }

// x y + sum, of numbers that have been flushed. Whether that is below 2^-126 is asked when it has
// been rounded to 24 bits, however small it is.
inline float flushing_fma(float x, float y, float sum) {
  const float result = std::fma(x, y, sum);
  // A float just below 2^-126 has fewer bits, and may have been rounded up to there. For factors of
  // eight bits this sum is exact in double precision.
  const bool rounded_up =
      std::abs(result) == 0x1p-126f && std::abs(double{x} * y + sum) < 0x1p-126 - 0x1p-151;
  return rounded_up ? std::copysign(0.0f, result) : flush(result);
}

// sum + a(0) b(0) + ... + a(n - 1) b(n - 1), where a(k) and b(k) are floats or, to save time, split
// floats.
template <typename A, typename B>
float bf16x3_dot(int64_t n, const A& a, const B& b, float sum = 0) {
  constexpr int64_t kChunk = 32;
  constexpr struct { int a, b; } kPairs[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    float x[3][kChunk] = {}, y[3][kChunk] = {};  // the parts
    for (int64_t k = begin; k < std::min(n, begin + kChunk); ++k) {
      const SplitFloat split_a = a(k), split_b = b(k);
      for (int part = 0; part < 3; ++part) {
        x[part][k - begin] = flush(split_a.part[part]);
        y[part][k - begin] = flush(split_b.part[part]);
      }
    }
    for (const auto pair : kPairs) {
      float chain[2] = {0, 0};  // of even and of odd k
      for (int64_t k = 0; k < kChunk; ++k)
        chain[k % 2] = flushing_fma(x[pair.a][k], y[pair.b][k], chain[k % 2]);
      sum = flushing_add(sum, flushing_add(chain[0], chain[1]));
    }
  }
  return sum;
}

// ---- What tests share ----

enum class Sizes {
  kUniform,  // in [-1, 1)
  kTiny,     // sums of their products are about 2^-126, on both sides
  kAll,      // from the smallest denormal numbers to the largest; most are zero, lest sums overflow
  kSomeBits,  // uniform, but for one in 64 of any bits: infinities, NaN of every payload
};
inline constexpr Sizes kAllSizes[] = {Sizes::kUniform, Sizes::kTiny, Sizes::kAll, Sizes::kSomeBits};

template <typename Values>
void fill_sizes(Values& values, Sizes sizes, uint64_t seed) {
  fill_uniform(values, -1, 1, seed);
  const RngStream stream{.seed = seed + 1000, .purpose = kRngSynthetic};
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    const uint32_t word = philox_word(stream, 2 * i), other = philox_word(stream, 2 * i + 1);
    const int exponent = static_cast<int>(word >> 16);
    switch (sizes) {
      case Sizes::kUniform: break;
      case Sizes::kTiny: values[i] = std::ldexp(values[i], exponent % 9 - 70); break;
      case Sizes::kAll:
        values[i] = word % 8 == 0 ? std::ldexp(values[i], exponent % 277 - 148) : 0;
        break;
      case Sizes::kSomeBits:
        if (word % 64 == 0) values[i] = std::bit_cast<float>(other);
        break;
    }
  }
}

// Whether two floats have the same bits, or both are NaN.
inline bool same_number(float x, float y) {
  return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) ||
         (std::isnan(x) && std::isnan(y));
}

inline void expect_same_numbers(const std::vector<float>& actual,
                                const std::vector<float>& expected,
                                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (same_number(actual[i], expected[i])) continue;
    ADD_FAILURE() << what << "[" << i << "] is " << actual[i] << ", not " << expected[i];
    return;
  }
}

// Calls body(name) for each instruction set on which sums of such products have the same bits.
// Plain x86-64 has no fused multiply-add; but products of bfloat16 numbers are exact, except that
// those below 2^-126 become zero before they are added.
inline void for_each_target_of(Sizes sizes,
                               const std::function<void(const std::string& name)>& body) {
  for_each_target([&](const std::string& target) {
    if (sizes == Sizes::kUniform || target != "baseline") body(target);
  });
}

}  // namespace lockstep::test

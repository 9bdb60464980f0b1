#include "runtime/base/exact_sum.h"

#include <cmath>
#include <limits>

namespace lockstep {

double ExactSum::value() const {
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
  const int zeros = std::countl_zero(first);
  const uint64_t next = digit(top - 2) << zeros;
  bool more = (next & 0xFFFFFFFFu) != 0;
  for (int i = 0; i < top - 2; ++i) more = more || digits[i] != 0;
  first = first << zeros | next >> 32 | (more ? 1 : 0);
  return std::ldexp(static_cast<double>(first), kLowestExponent + 32 * (top - 1) - zeros);
}

}  // namespace lockstep

#pragma once
// Division of indices by numbers that are known before a kernel starts. Only kernel files include
// this.

#include <cstdint>

#include "runtime/base/host_device.h"

namespace lockstep::cuda {

// Divides indices in [0, 2^31) by a divisor in [1, 2^31): one product and shifts (Granlund and
// Montgomery 1994, figure 4.1).
struct Divisor32 {
  using Index = uint32_t;
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  Divisor32() = default;
  explicit Divisor32(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    multiplier = static_cast<uint32_t>(
        (uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor) / divisor + 1);
  }
  LOCKSTEP_HD uint32_t divide(uint32_t n) const {
    const auto high = static_cast<uint32_t>(static_cast<uint64_t>(n) * multiplier >> 32);
    return (high + n) >> shift;
  }
};

// Divides any indices.
struct Divisor64 {
  using Index = uint64_t;
  uint64_t divisor = 1;

  Divisor64() = default;
  explicit Divisor64(int64_t d) : divisor(static_cast<uint64_t>(d)) {}
  LOCKSTEP_HD uint64_t divide(uint64_t n) const { return n / divisor; }
};

inline constexpr int64_t kMaxIndices32 = int64_t{1} << 31;

// Calls f with a divisor of the type for indices in [0, n).
template <typename F>
void with_divisor(int64_t n, F f) {
  if (n < kMaxIndices32) {
    f(Divisor32());
  } else {
    f(Divisor64());
  }
}

}  // namespace lockstep::cuda

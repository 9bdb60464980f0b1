#pragma once
// The 16-bit floating-point types as they are stored, and their conversions, which are the same on
// host and device. Conversion from float rounds to nearest, ties to even; conversion to float is
// exact. Arithmetic is done in float.

#include <bit>
#include <cstdint>

#include "runtime/base/host_device.h"

namespace lockstep {

// bfloat16: the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits;
};

LOCKSTEP_HD float to_float(float x) { return x; }

LOCKSTEP_HD float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

LOCKSTEP_HD float to_float(Float16 x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#else
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // With its bits shifted into the fields of a float, the number is too small by 2^112, whether it
  // is subnormal or not.
  return std::bit_cast<float>(
      sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
#endif
}

// x converted to T.
template <typename T>
LOCKSTEP_HD T round_to(float x);

template <>
LOCKSTEP_HD float round_to<float>(float x) {
  return x;
}

template <>
LOCKSTEP_HD BFloat16 round_to<BFloat16>(float x) {
#ifdef __CUDA_ARCH__
  BFloat16 value;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
  return value;
#else
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fffu};  // the NaN that the GPU writes
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
#endif
}

template <>
LOCKSTEP_HD Float16 round_to<Float16>(float x) {
#ifdef __CUDA_ARCH__
  Float16 value;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
  return value;
#else
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fffu};  // the NaN that the GPU writes
  // Rounds to 65536, which is infinity.
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves the wanted bits at the bottom
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return {static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13)};
#endif
}

}  // namespace lockstep

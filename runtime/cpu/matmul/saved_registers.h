#pragma once
// What the operating system of an x86-64 machine allows.

#include <cpuid.h>

#include <cstdint>

namespace lockstep::cpu {

// Whether the system saves the registers with these bits of XCR0, so that programs may use them.
inline bool saves_registers(uint64_t bits) {
  uint32_t a, b, c, d;
  constexpr uint32_t kOsXsave = 1u << 27;  // without it, xgetbv is an illegal instruction
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((low | uint64_t{high} << 32) & bits) == bits;
}

}  // namespace lockstep::cpu

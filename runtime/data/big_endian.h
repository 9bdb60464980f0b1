#pragma once
// Big-endian numbers, as in IDX and PNG files.

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::data {

// The 32-bit number at `offset`, most significant byte first.
inline int64_t big_endian_32(std::span<const std::byte> bytes, size_t offset) {
  int64_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<int64_t>(bytes[offset + i]);
  return value;
}

}  // namespace lockstep::data

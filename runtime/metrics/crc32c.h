#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// CRC-32C (Castagnoli polynomial, reflected), as iSCSI defines it.
uint32_t crc32c(const void* data, size_t bytes);

// The form that TFRecord files store: rotated right by 15 bits, plus a constant.
inline uint32_t masked_crc32c(const void* data, size_t bytes) {
  const uint32_t crc = crc32c(data, bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace lockstep

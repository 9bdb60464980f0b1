#pragma once
// Bit checksums (runtime/base/bit_checksum.h) on a GPU.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// *sum += the bit checksum of n elements. T is uint32_t or uint16_t, which hold the elements' bits.
template <typename T>
void add_bits(const T* x,  // (n)
              int64_t n,
              uint32_t* workspace,  // kBitChecksumBlocks, on the device
              uint32_t* sum,        // on the device, or pinned on the host
              Stream stream);
inline constexpr unsigned kBitChecksumBlocks = 1024;

}  // namespace lockstep::cuda

#pragma once
// Sums of bits (runtime/base/bit_sum.h) on a GPU.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// *sum += the bits of n elements. T is uint32_t or uint16_t: the elements' bits.
template <typename T>
void add_bits(const T* x,  // (n)
              int64_t n,
              uint32_t* workspace,  // kBitSumBlocks, on the device
              uint32_t* sum,        // on the device, or pinned on the host
              Stream stream);
inline constexpr unsigned kBitSumBlocks = 1024;

}  // namespace lockstep::cuda

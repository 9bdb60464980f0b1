#pragma once
// Exact sums of squares on the GPU.

#include <cstdint>

#include "runtime/base/exact_sum.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// *sum += x^2, in chunks from the first element on (exact_sum.h): the same bits as
// cpu::add_squares.
void add_squares(const float* x,  // (n)
                 int64_t n,
                 ExactSum* workspace,  // (kSquaresBlocks)
                 ExactSum* sum,        // on the device, or pinned on the host
                 Stream stream);
inline constexpr int64_t kSquaresBlock = 16384;  // min elements per block
inline constexpr unsigned kSquaresBlocks = 1024;

}  // namespace lockstep::cuda

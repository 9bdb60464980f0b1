#pragma once

#include <cstdint>

#include "runtime/base/rng.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::cuda {

// y = x / (1 - p) where philox_word({lane->seed, lane->step, lane->lane, purpose}, i) >= p * 2^32,
// else 0: the mask of cpu::dropout_forward. Backward is the same function of d_y. In place (y == x)
// is allowed. T is float, BFloat16 or Float16.
template <typename T>
void dropout(const T* x,  // (n)
             T* y,        // (n)
             int64_t n,
             float p,                  // probability of dropping, in [0, 1)
             const LaneContext* lane,  // on the device
             uint32_t purpose,         // of RngStream
             Stream stream);

}  // namespace lockstep::cuda

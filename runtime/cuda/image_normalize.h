#pragma once
// Pixels of bytes to normalised numbers on the GPU.

#include <cstdint>
#include <vector>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

inline constexpr int64_t kMostImageChannels = 64;

// y = (x / 255 - mean) / std by channel, rounded to T: float, BFloat16 or Float16. At most
// kMostImageChannels channels and 2^31 - 1 elements.
template <typename T>
void image_normalize(const uint8_t* x,  // (pixels, channels)
                     int64_t pixels,
                     const std::vector<float>& mean,  // (channels), on the host
                     const std::vector<float>& std,   // (channels), on the host
                     T* y,                            // (pixels, channels)
                     Stream stream);

}  // namespace lockstep::cuda

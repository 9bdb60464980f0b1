#pragma once
// Pixels to numbers.

#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

// Scratch bytes of image_normalize.
size_t image_normalize_workspace_bytes(int64_t channels);

// y = (x / 255 - mean) / std by channel, as one multiply-add.
void image_normalize(int64_t pixels,
                     int64_t channels,
                     const uint8_t* x,   // (pixels, channels)
                     const float* mean,  // (channels)
                     const float* std,   // (channels)
                     float* y,           // (pixels, channels)
                     void* workspace);   // aligned to 64 bytes

}  // namespace lockstep::cpu

#pragma once
// Pixels of bytes to normalised numbers on the GPU.

#include <cstdint>
#include <vector>

#include "runtime/cuda/stream.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::cuda {

inline constexpr int64_t kMostImageChannels = 64;

// y as runtime/cpu/ops/image_normalize.h says, rounded to T: float, BFloat16 or Float16. At most
// kMostImageChannels channels and 2^31 - 1 elements.
template <typename T>
struct ImageNormalize {
  int64_t images;
  int64_t pixels;                  // of an image
  const uint8_t* x;                // (images, pixels, channels)
  const std::vector<float>& mean;  // (channels), on the host
  const std::vector<float>& std;   // (channels), on the host
  const LaneContext* lane;         // on the device: mix, and valid_rows, which are images
  T* y;                            // (images, pixels, channels)
};
template <typename T>
void image_normalize(const ImageNormalize<T>& op, Stream stream);

}  // namespace lockstep::cuda

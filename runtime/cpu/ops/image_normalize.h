#pragma once
// Pixels to numbers.

#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

// Scratch bytes of image_normalize.
size_t image_normalize_workspace_bytes(int64_t channels);

// y = (x / 255 - mean) / std by channel, as one multiply-add. Where mix is below 1, image i of the
// valid_images first becomes mix times itself plus 1 - mix times image valid_images - 1 - i; which
// may be done before, as the shares add up to 1: x becomes mix * (x - other) + other, which leaves
// an image alone that is its own other.
struct ImageNormalize {
  int64_t images;
  int64_t pixels;  // of an image
  int64_t channels;
  const uint8_t* x;      // (images, pixels, channels)
  const float* mean;     // (channels)
  const float* std;      // (channels)
  float* y;              // (images, pixels, channels)
  void* workspace;       // aligned to 64 bytes
  int64_t valid_images;  // only matters where mix is below 1; may be more than there are
  float mix = 1;         // in [0, 1]
};
void image_normalize(const ImageNormalize& op);

}  // namespace lockstep::cpu

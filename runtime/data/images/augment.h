#pragma once
// Random augmentation of training images: a pure function of (seed, epoch, sample).

#include <array>
#include <cstdint>

#include "runtime/config/run_config.h"
#include "runtime/data/images/image.h"

namespace lockstep::data {

// The augmentation that was drawn for one sample.
struct Augmentation {
  // The region cut out of the stored image; the whole image without random_resized_crop.
  ImageRegion crop;
  int shift_y = 0, shift_x = 0;  // pad_and_crop: pixel (y, x) comes from (y + shift, x + shift)
  bool flip = false;
  // Colour jitter: the steps in their order, each with its factor. The hue's is in turns.
  enum Step : uint8_t { kBrightness, kContrast, kSaturation, kHue };
  std::array<Step, 4> order{kBrightness, kContrast, kSaturation, kHue};
  std::array<float, 4> factor{1, 1, 1, 0};  // by Step
};

// Draws the augmentation of an image of `size`, which is the sample `sample` of `epoch`.
Augmentation draw_augmentation(
    const AugmentConfig& config, ImageSize size, uint64_t seed, int64_t epoch, int64_t sample);

// Applies the colour steps to `pixels` RGB pixels in place, like torchvision on floats in [0, 1]:
// every step clamps, and only the result is rounded to bytes.
void jitter_colours(const Augmentation& augmentation, int64_t pixels, uint8_t* rgb);

}  // namespace lockstep::data

#pragma once
// What becomes of a training image: drawn once, as a pure function of (seed, epoch, sample).

#include <array>
#include <cstdint>

#include "runtime/config/run_config.h"
#include "runtime/data/images/image.h"

namespace lockstep {

// What is drawn for one sample.
struct Augmentation {
  // What is cut out of the stored image; all of it without random_resized_crop.
  ImageRegion crop;
  int shift_y = 0, shift_x = 0;  // pad_and_crop: pixel (y, x) comes from (y + shift, x + shift)
  bool flip = false;
  // Colour jitter: steps in this order, each with its factor; hue in turns.
  enum Step : uint8_t { kBrightness, kContrast, kSaturation, kHue };
  std::array<Step, 4> order{kBrightness, kContrast, kSaturation, kHue};
  std::array<float, 4> factor{1, 1, 1, 0};  // by Step
};

// Draws for the image of `size` that takes part in `epoch` as `sample`.
Augmentation draw_augmentation(
    const AugmentConfig& config, ImageSize size, uint64_t seed, int64_t epoch, int64_t sample);

// Applies the colour steps to `pixels` RGB pixels in place, as torchvision does on floats in
// [0, 1]: every step clamps; bytes are rounded at the end.
void jitter_colours(const Augmentation& augmentation, int64_t pixels, uint8_t* rgb);

}  // namespace lockstep

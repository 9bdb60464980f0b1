#pragma once
// Synthetic images.

#include <cstdint>

#include "runtime/data/images/image_stores.h"

namespace lockstep::data {

// An image is a pure function of (seed, index). It is divided into 8 x 8 cells, each lighter or
// darker in each channel; that pattern belongs to the class. Noise stronger than the pattern is
// added. At most 4,096 images and about 64 MiB are generated; larger indices repeat them. There is
// no evaluation set. `masks`: with classes of pixels in place of one of the image.
ImageStores make_synthetic_images(const SyntheticConfig& synthetic,
                                  uint64_t seed,
                                  bool need_train,
                                  bool masks = false);

}  // namespace lockstep::data

#pragma once
// Images of the synthetic data.

#include <cstdint>

#include "runtime/data/images/image_stores.h"

namespace lockstep {

// A pure function of (seed, index): every field of 8 x 8 is lighter or darker, channel by channel,
// as the label's class decides, under noise that is stronger. At most 4,096 images and about 64 MiB
// are made; larger indices repeat them. No evaluation set.
ImageStores make_synthetic_images(const SyntheticConfig& synthetic, uint64_t seed, bool need_train);

}  // namespace lockstep

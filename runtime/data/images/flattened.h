#pragma once
// Pictures as feature vectors, for models that take those.

#include <memory>
#include <vector>

#include "runtime/data/dataset.h"

namespace lockstep {

// Samples of `images`, (H, W, C) u8, as x (H * W * C) f32 = (byte / 255 - mean[c]) / std[c].
std::unique_ptr<Dataset> flatten_images(std::unique_ptr<Dataset> images,
                                        const std::vector<float>& mean,
                                        const std::vector<float>& std);

}  // namespace lockstep

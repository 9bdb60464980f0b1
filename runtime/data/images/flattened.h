#pragma once
// Images as feature vectors, for models that take features.

#include "runtime/data/dataset.h"

namespace lockstep::data {

// Converts samples (H, W, C) u8 to x (H * W * C) f32 = (byte / 255 - mean[c]) / std[c]; they are
// normalised here, because such models do not do it. Throws ConfigError if the model's targets are
// not classes, DataError if it has fewer classes than the data.
OpenedData flatten_images(OpenedData images, const config::ModelTraits& model);

}  // namespace lockstep::data

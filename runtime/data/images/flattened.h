#pragma once
// Images as feature vectors, for models that take those.

#include "runtime/data/dataset.h"

namespace lockstep {

// The data sets of `images`, whose samples are (H, W, C) u8, with samples x (H * W * C) f32 =
// (byte / 255 - mean[c]) / std[c], normalised here since such a model does not do it. Throws
// ConfigError where the model's targets are no classes, DataError where it has fewer than the data.
OpenedData flatten_images(OpenedData images, const ModelTraits& model);

}  // namespace lockstep

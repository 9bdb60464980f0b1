#pragma once
// Encodes PNG images with libpng.

#include <string>

#include "runtime/data/images/image.h"

namespace lockstep::data {

// Returns the image as the bytes of a PNG file. The image has 1 channel (gray) or 3 (RGB).
std::string encode_png(const PixelView& image);

}  // namespace lockstep::data

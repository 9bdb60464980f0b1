#pragma once
// PNG images through libpng.

#include <string>

#include "runtime/data/images/image.h"

namespace lockstep {

// The bytes of a PNG file of the image, which has 1 channel (gray) or 3 (RGB).
std::string encode_png(const PixelView& image);

}  // namespace lockstep

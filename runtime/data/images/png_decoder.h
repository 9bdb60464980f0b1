#pragma once
// PNG images through libpng.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/data/images/image.h"

namespace lockstep {

// PNG of any kind to 8-bit RGB: gray is tripled, palettes are looked up, 16 bits are scaled to 8.
// Alpha is dropped, not blended, as torchvision's convert("RGB") does. Gamma is ignored. One object
// per thread; the pixels' memory is kept from image to image (libpng allocates its own anew).
class PngDecoder {
 public:
  // True when `bytes` begins as every PNG file does.
  static bool is_png(std::span<const std::byte> bytes);

  // The size that the header claims. Throws DataError, without a file's name, when the header is
  // damaged or the image is larger than kMostPixels.
  static ImageSize size_of(std::span<const std::byte> bytes);

  // Decodes the whole file. The pixels lie in the decoder's memory until the next decode(). Throws
  // DataError when it is truncated, or damaged in what the pixels are made of: checksums of the
  // chunks that libpng can do without are not looked at.
  PixelView decode(std::span<const std::byte> bytes);

 private:
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t*> rows_;
};

}  // namespace lockstep

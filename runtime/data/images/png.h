#pragma once
// Decodes and encodes PNG images with libpng.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/images/image.h"

namespace lockstep::data {

// Decodes PNG files of all kinds to 8-bit RGB: gray is tripled, palettes are looked up, 16 bits are
// scaled to 8. Alpha is dropped, not blended, like PIL's convert("RGB"). Gamma is ignored. Use one
// object per thread. It keeps the memory of pixels from image to image; libpng allocates its own.
class PngDecoder {
 public:
  // Whether `bytes` begins with the signature of PNG files.
  static bool is_png(std::span<const std::byte> bytes);

  // The size according to the header. Throws DataError, without a file name, if the header is
  // damaged or the image has more than kMaxPixels pixels.
  static ImageSize size_of(std::span<const std::byte> bytes);

  // Decodes the whole file. The pixels stay in the decoder's memory until the next decode(). Throws
  // DataError if the file is truncated or if data that affect the pixels are damaged. Checksums of
  // ancillary chunks are not verified.
  PixelView decode(std::span<const std::byte> bytes);

  // Decodes the numbers of a grey image of up to 8 bits or the indices of a palette: one channel,
  // not scaled. Throws DataError for images of other kinds, and like decode().
  PixelView decode_numbers(std::span<const std::byte> bytes);

 private:
  PixelView decode_as(std::span<const std::byte> bytes, bool numbers);

  std::vector<uint8_t> pixels_;
  std::vector<uint8_t*> rows_;
};

// Returns the image as the bytes of a PNG file. The image has 1 channel (gray) or 3 (RGB).
std::string encode_png(const PixelView& image);

}  // namespace lockstep::data

#pragma once
// Decodes images of any supported format.

#include <cstddef>
#include <span>

#include "runtime/data/images/jpeg_decoder.h"
#include "runtime/data/images/png.h"

namespace lockstep::data {

// Decodes JPEG and PNG, which it distinguishes by their first bytes. Use one object per thread.
class ImageDecoder {
 public:
  // Opens the image in `bytes`, which must stay valid until decode() returns. Returns its size.
  // Throws DataError, without a file name, if it is neither JPEG nor PNG or its header is damaged.
  ImageSize open(std::span<const std::byte> bytes);

  // The size of the opened image if it is decoded with this denominator (1, 2, 4 or 8).
  ImageSize shrunk(int denominator) const;

  // The largest denominator that leaves at least one input pixel per output pixel, if there are
  // `scale` input pixels per output pixel at full size. 1 for PNG, which cannot be shrunk.
  int denominator_for(double scale) const;

  // Decodes `region` of the shrunk image and closes the image. The pixels are valid until the next
  // decode(). Throws DataError if anything in the file is damaged.
  PixelView decode(int denominator, const ImageRegion& region);

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  std::span<const std::byte> opened_png_;  // empty: JPEG
  ImageSize size_;
};

}  // namespace lockstep::data

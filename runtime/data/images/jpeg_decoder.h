#pragma once
// Decodes JPEG images with libjpeg-turbo.

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/data/images/image.h"

namespace lockstep::data {

// Decodes baseline and progressive JPEG with any chroma sampling to RGB. Gray is tripled. CMYK and
// YCCK (inverted if written by Adobe) are multiplied by black. The EXIF orientation is ignored, as
// in torchvision. Damaged data anywhere in the file are an error, not gray blocks, because every
// file is decoded to its end. Use one object per thread. It keeps only the memory of pixels from
// image to image, so the pixels depend on the file alone.
class JpegDecoder {
 public:
  JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder();

  // Opens the image in `bytes`, which must stay valid until decode() returns. Returns its size.
  // Throws DataError, without a file name, if the header is damaged or the image has more than
  // kMaxPixels pixels.
  ImageSize open(std::span<const std::byte> bytes);

  // The size of an image that the decoder shrinks by `denominator` (1, 2, 4 or 8), which is much
  // faster than decoding in full: both sides divided, rounded up.
  static ImageSize shrunk(ImageSize size, int denominator);

  // Decodes the opened image, shrunk by `denominator`, and closes it. Only the pixels of `region`,
  // a region of the shrunk image that must not be empty, are computed. They stay in the decoder's
  // memory until the next decode(), and equal those of jpeg_read_scanlines with libjpeg's defaults.
  // Throws DataError if the file is damaged.
  PixelView decode(int denominator, const ImageRegion& region);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data

#pragma once
// JPEG images through libjpeg-turbo.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/data/images/image.h"

namespace lockstep {

// Baseline and progressive JPEG of any sampling to RGB: gray is tripled, CMYK and YCCK (inverted
// where Adobe wrote them) lose their black. The EXIF orientation is ignored, as torchvision does.
// Damaged data are an error wherever they lie in the file, not gray blocks: every file is decoded
// to its end. One object per thread; the pixels' memory is kept from image to image, and
// nothing else: what a file decodes to depends on that file alone.
class JpegDecoder {
 public:
  JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder();

  // Begins with the image in `bytes`, which must stay until decode() returns; gives its size.
  // Throws DataError, without a file's name, when the header is damaged or the image is larger
  // than kMostPixels.
  ImageSize open(std::span<const std::byte> bytes);

  // Size of the opened image when shrunk by 1, 2, 4 or 8 in the decoder, which is much faster
  // than decoding all of it: both sides divided, rounded up.
  static ImageSize shrunk(ImageSize size, int denominator);

  // Decodes the opened image, shrunk, and ends with it. `region`, of the shrunk image, is not
  // empty; only its pixels are computed. They lie in the decoder's memory until the next decode().
  // Pixels are those of jpeg_read_scanlines with libjpeg's defaults. Throws DataError.
  PixelView decode(int denominator, const ImageRegion& region);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

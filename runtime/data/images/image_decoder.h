#pragma once
// Any image that Lockstep reads, to pixels.

#include <cstddef>
#include <span>

#include "runtime/data/images/jpeg_decoder.h"
#include "runtime/data/images/png_decoder.h"

namespace lockstep {

// JPEG or PNG, told by the first bytes. One object per thread.
class ImageDecoder {
 public:
  // Begins with the image in `bytes`, which must stay until decode() returns; gives its size.
  // Throws DataError, without a file's name, when it is neither JPEG nor PNG or its header is
  // damaged.
  ImageSize open(std::span<const std::byte> bytes);

  // Size of the opened image where decode() is given this denominator, 1, 2, 4 or 8.
  ImageSize shrunk(int denominator) const;

  // The largest denominator by which the image may be shrunk so that `scale` input pixels per
  // output pixel become no fewer than one. 1 for PNG, which cannot be shrunk.
  int denominator_for(double scale) const;

  // Decodes the opened image and ends with it: `region` of it, shrunk. The pixels stay until the
  // next decode(). Throws DataError when anything in the file is damaged.
  PixelView decode(int denominator, const ImageRegion& region);

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  std::span<const std::byte> opened_png_;  // empty: JPEG
  ImageSize size_;
};

}  // namespace lockstep

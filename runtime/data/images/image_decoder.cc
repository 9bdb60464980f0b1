#include "runtime/data/images/image_decoder.h"

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"

namespace lockstep::data {

ImageSize ImageDecoder::open(std::span<const std::byte> bytes) {
  opened_png_ = {};
  if (PngDecoder::is_png(bytes)) {
    size_ = PngDecoder::size_of(bytes);
    opened_png_ = bytes;
    return size_;
  }
  if (bytes.size() < 2 || bytes[0] != std::byte{0xff} || bytes[1] != std::byte{0xd8})
    throw DataError("{}", is_not(bytes, "a JPEG or PNG image"));
  size_ = jpeg_.open(bytes);
  return size_;
}

ImageSize ImageDecoder::shrunk(int denominator) const {
  return JpegDecoder::shrunk(size_, denominator);
}

int ImageDecoder::denominator_for(double scale) const {
  if (!opened_png_.empty()) return 1;
  int denominator = 8;
  while (denominator > 1 && scale < denominator) denominator /= 2;
  return denominator;
}

PixelView ImageDecoder::decode(int denominator, const ImageRegion& region) {
  if (opened_png_.empty()) return jpeg_.decode(denominator, region);
  LOCKSTEP_CHECK(denominator == 1);
  return png_.decode(opened_png_);
}

}  // namespace lockstep::data

// PNG files through the decoder: finds reads outside the file or the pixels, and headers that are
// believed. Checksums are put right, else hardly any mutation would get past them.

#include <zlib.h>

#include "fuzz_target.h"
#include "runtime/data/images/png.h"
#include "tests/unit/data/images.h"

namespace lockstep::fuzz {

std::vector<std::string> seed_inputs() {
  using test::encode_png;
  using test::make_image;
  return {encode_png(make_image(9, 7)),
          encode_png(make_image(8, 8, 4)),
          encode_png(5, 5, make_image(5, 5, 1).pixels, {PNG_COLOR_TYPE_GRAY, 8, true}),
          encode_png(2, 2, {0, 1, 1, 0}, {PNG_COLOR_TYPE_PALETTE}, {{1, 2, 3}, {4, 5, 6}}),
          encode_png(1, 2, {1, 2, 3, 4}, {PNG_COLOR_TYPE_GRAY, 16})};
}

}  // namespace lockstep::fuzz

namespace {

uint32_t big_endian(const std::vector<std::byte>& file, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(file[at + i]);
  return value;
}

void mend(std::vector<std::byte>* file) {
  for (size_t at = 8; at + 12 <= file->size();) {
    const size_t length = big_endian(*file, at);
    if (length > file->size() - at - 12) return;
    const auto crc = static_cast<uint32_t>(crc32(
        0, reinterpret_cast<const Bytef*>(file->data() + at + 4), static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i)
      (*file)[at + 8 + length + i] = static_cast<std::byte>(crc >> (24 - 8 * i));
    at += length + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr int64_t kMaxFuzzedPixels = 1 << 16;
  std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                              reinterpret_cast<const std::byte*>(data) + size);
  static data::PngDecoder decoder;
  for (int mended = 0; mended < 2; ++mended) {
    fuzz::expect_errors_only([&] {
      const data::ImageSize claimed = data::PngDecoder::size_of(file);
      if (int64_t{claimed.height} * claimed.width > kMaxFuzzedPixels) return;
      const data::PixelView view = decoder.decode(file);
      if (view.size != claimed) fuzz::fail("another size than the header's");
      test::copy_of(view, {0, claimed.height, 0, claimed.width});
    });
    mend(&file);
  }
  return 0;
}

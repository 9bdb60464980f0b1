// JPEG files through the decoder: finds reads outside the file or the pixels, headers that are
// believed, and images whose parts differ from the whole.

#include "fuzz_target.h"
#include "runtime/data/images/jpeg_decoder.h"
#include "tests/unit/data/images.h"

namespace lockstep::fuzz {

// The first byte chooses what is decoded.
std::vector<std::string> seed_inputs() {
  using test::encode_jpeg;
  using test::make_image;
  return {std::string(1, '\x01') + encode_jpeg(make_image(33, 41)),
          std::string(1, '\x02') + encode_jpeg(make_image(20, 20), {.progressive = true}),
          std::string(1, '\x03') + encode_jpeg(make_image(17, 9, 1)),
          std::string(1, '\x24') +
              encode_jpeg(make_image(16, 24, 4), {.stored = JCS_YCCK, .subsampling = 1})};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr int64_t kMaxFuzzedPixels = 1 << 16;  // larger ones only take time
  if (size == 0) return 0;
  const int denominator = 1 << (data[0] % 4);
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data + 1),
                                    reinterpret_cast<const std::byte*>(data + size));
  static data::JpegDecoder decoder;  // its state must survive whatever came before
  fuzz::expect_errors_only([&] {
    const data::ImageSize size_of_file = decoder.open(file);
    if (int64_t{size_of_file.height} * size_of_file.width > kMaxFuzzedPixels) return;
    const data::ImageSize shrunk = data::JpegDecoder::shrunk(size_of_file, denominator);
    const data::ImageRegion all{0, shrunk.height, 0, shrunk.width};
    const test::Image whole = test::copy_of(decoder.decode(denominator, all), all);
    const data::ImageRegion part{shrunk.height / 3,
                                 shrunk.height / 3 + (shrunk.height + 1) / 2,
                                 shrunk.width / 2,
                                 shrunk.width / 2 + (shrunk.width + 1) / 2};
    decoder.open(file);
    if (test::copy_of(decoder.decode(denominator, part), part).pixels !=
        test::part_of(whole, part).pixels)
      fuzz::fail("a part differs from the whole");
  });
  return 0;
}

// Catches pixels that are not libjpeg's, regions that differ from the whole, colours of gray and
// CMYK files that are wrong, and damage that passes for an image.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "files.h"
#include "images.h"
#include "runtime/data/images/image_decoder.h"

namespace lockstep::data {
namespace {

using test::bytes_of;
using test::copy_of;
using test::encode_jpeg;
using test::error_of;
using test::Image;
using test::make_image;

Image decode(JpegDecoder& decoder, const std::string& file) {
  const ImageSize size = decoder.open(bytes_of(file));
  const ImageRegion all{0, size.height, 0, size.width};
  return copy_of(decoder.decode(1, all), all);
}

struct Form {
  const char* name;
  int channels;
  test::JpegOptions options;
  friend void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }
};

class Forms : public ::testing::TestWithParam<Form> {};

INSTANTIATE_TEST_SUITE_P(
    Jpeg,
    Forms,
    ::testing::Values(Form{"S420", 3, {.subsampling = 2}},
                      Form{"S444", 3, {.subsampling = 1}},
                      Form{"S422", 3, {.subsampling = 2, .subsampling_down = 1}},
                      Form{"S440", 3, {.subsampling = 1, .subsampling_down = 2}},
                      Form{"S411", 3, {.subsampling = 4, .subsampling_down = 1}},
                      Form{"Odd", 3, {.subsampling = 2, .chroma_down = 4}},
                      Form{"Progressive", 3, {.progressive = true}},
                      Form{"Rgb", 3, {.stored = JCS_RGB, .subsampling = 1}},
                      Form{"Gray", 1, {}},
                      Form{"GrayProgressive", 1, {.progressive = true}}),
    [](const auto& info) { return info.param.name; });

TEST_P(Forms, DecodeLikeThePlainLoop) {
  JpegDecoder decoder;
  for (const auto& [height, width] : {std::pair(1, 1), {7, 3}, {64, 64}, {101, 77}, {33, 250}}) {
    const std::string file =
        encode_jpeg(make_image(height, width, GetParam().channels), GetParam().options);
    EXPECT_EQ(decode(decoder, file).pixels, test::decode_plainly(bytes_of(file)).pixels)
        << height << " x " << width;
  }
}

// Every region, shrunk or not, is what the whole image has there: chroma upsampling must not
// show where a region begins.
TEST_P(Forms, RegionsAreThoseOfTheWhole) {
  const std::string file =
      encode_jpeg(make_image(143, 217, GetParam().channels), GetParam().options);
  std::mt19937 random(1);
  JpegDecoder decoder;
  for (int denominator : {1, 2, 4, 8}) {
    const Image whole = test::decode_plainly(bytes_of(file), denominator);
    for (int i = 0; i < 60; ++i) {
      const ImageSize size = JpegDecoder::shrunk(decoder.open(bytes_of(file)), denominator);
      ASSERT_EQ(size, (ImageSize{whole.height, whole.width}));
      ImageRegion region;
      region.top = static_cast<int>(random() % size.height);
      region.bottom = region.top + 1 + static_cast<int>(random() % (size.height - region.top));
      region.left = static_cast<int>(random() % size.width);
      region.right = region.left + 1 + static_cast<int>(random() % (size.width - region.left));
      const PixelView view = decoder.decode(denominator, region);
      ASSERT_EQ(view.size, size);
      const Image part = copy_of(view, region);
      ASSERT_EQ(part.pixels, test::part_of(whole, region).pixels)
          << "1/" << denominator << " rows " << region.top << ".." << region.bottom << " columns "
          << region.left << ".." << region.right;
    }
  }
}

// Adobe's files hold 255 - ink.
TEST(Jpeg, MakesCmykRed) {
  for (const bool adobe : {true, false}) {
    for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
      if (!adobe && stored == JCS_YCCK) continue;  // told by the marker only
      Image inks{16, 16, 4, {}};
      for (int i = 0; i < 256; ++i)
        for (const int ink : {0, 200, 255, 51})  // cyan, magenta, yellow, black
          inks.pixels.push_back(static_cast<uint8_t>(adobe ? 255 - ink : ink));
      JpegDecoder decoder;
      const Image rgb = decode(
          decoder,
          encode_jpeg(inks, {.quality = 100, .stored = stored, .subsampling = 1, .adobe = adobe}));
      ASSERT_EQ(rgb.channels, 3);
      ASSERT_EQ(rgb.pixels.size(), 768u);
      for (int i = 0; i < 768; i += 3) {
        EXPECT_NEAR(rgb.pixels[i], 204, 2);     // 255 * (1 - 0) * 0.8
        EXPECT_NEAR(rgb.pixels[i + 1], 44, 2);  // 55 * 0.8
        EXPECT_NEAR(rgb.pixels[i + 2], 0, 2);
      }
    }
  }
}

TEST(Jpeg, TruncatedFilesAreBadWhereverTheyEnd) {
  for (const bool progressive : {false, true}) {
    const std::string file = encode_jpeg(make_image(90, 70), {.progressive = progressive});
    JpegDecoder decoder;
    for (size_t length = 0; length + 2 < file.size(); length += 1 + length / 50) {
      const std::string part = file.substr(0, length);
      EXPECT_NE(error_of([&] { decode(decoder, part); }), "no error") << length;
      // Also where only its beginning is wanted.
      EXPECT_NE(error_of([&] {
                  decoder.open(bytes_of(part));
                  decoder.decode(8, {0, 1, 0, 1});
                }),
                "no error")
          << length;
    }
    EXPECT_EQ(decode(decoder, file).pixels, test::decode_plainly(bytes_of(file)).pixels);
  }
}

// Rubbish behind an image and fill bytes do no harm.
TEST(Jpeg, HarmlessOdditiesAreNotErrors) {
  const std::string file = encode_jpeg(make_image(40, 40));
  JpegDecoder decoder;
  const auto whole = decode(decoder, file).pixels;
  EXPECT_EQ(decode(decoder, file + "rubbish").pixels, whole);
  const std::string stuffed =
      file.substr(0, 2) + std::string("\xff\xff\xff", 3) + file.substr(3);  // fill bytes
  EXPECT_EQ(decode(decoder, stuffed).pixels, whole);
}

// What a file decodes to, or that it is bad, must not depend on the files before it.
// A header alone asks for no memory; what packs best is allowed.
TEST(Jpeg, ASmallFileHasNoManyPixels) {
  JpegDecoder decoder;
  for (const bool progressive : {false, true}) {
    Image flat = make_image(1200, 1600, 1);
    std::ranges::fill(flat.pixels, uint8_t{128});
    std::string file = encode_jpeg(flat, {.progressive = progressive});
    EXPECT_EQ(decode(decoder, file).pixels.size(), flat.pixels.size() * 3);
    const size_t frame = file.find(progressive ? "\xFF\xC2" : "\xFF\xC0");
    ASSERT_NE(frame, std::string::npos);
    file.replace(frame + 5, 4, "\x27\x10\x27\x10");  // 10,000 x 10,000
    EXPECT_EQ(error_of([&] { decode(decoder, file); }),
              "damaged JPEG: " + std::to_string(file.size()) +
                  " bytes for 10000 x 10000 pixels; the file is truncated");
  }
}

TEST(Jpeg, KeepsNothingOfOtherImages) {
  const std::string whole = encode_jpeg(make_image(30, 30), {.progressive = true});
  std::string without = whole;  // its Huffman tables renamed to comments
  for (size_t at = without.find("\xff\xc4"); at != std::string::npos; at = without.find("\xff\xc4"))
    without[at + 1] = '\xfe';
  JpegDecoder fresh, used;
  decode(used, whole);
  const std::string error = error_of([&] { decode(fresh, without); });
  EXPECT_NE(error, "no error");
  EXPECT_EQ(error_of([&] { decode(used, without); }), error);
}

TEST(Jpeg, RefusesWhatIsNone) {
  ImageDecoder decoder;
  for (const std::string& text : {std::string(), std::string("GIF89a"), std::string("\xff\xd8", 2)})
    EXPECT_NE(error_of([&] { decoder.open(bytes_of(text)); }), "no error");
  // 65,000 x 65,000 pixels claimed.
  std::string file = encode_jpeg(make_image(16, 16));
  const size_t frame = file.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i : {5, 6, 7, 8}) file[frame + i] = static_cast<char>(0xfd);
  test::expect_parts(error_of([&] { decoder.open(bytes_of(file)); }), {"65021 x 65021", "allowed"});
}

TEST(Jpeg, ShrinksAsFarAsTheOutputAllows) {
  ImageDecoder decoder;
  const std::string file = encode_jpeg(make_image(16, 16));
  decoder.open(bytes_of(file));
  EXPECT_EQ(decoder.denominator_for(0.5), 1);
  EXPECT_EQ(decoder.denominator_for(1.99), 1);
  EXPECT_EQ(decoder.denominator_for(2), 2);
  EXPECT_EQ(decoder.denominator_for(7.9), 4);
  EXPECT_EQ(decoder.denominator_for(100), 8);
}

}  // namespace
}  // namespace lockstep::data

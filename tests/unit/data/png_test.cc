// Catches kinds of PNG that come out wrong, and damage that passes for an image.

#include <gtest/gtest.h>

#include "files.h"
#include "images.h"
#include "runtime/data/images/image_decoder.h"

namespace lockstep::data {
namespace {

using test::bytes_of;
using test::encode_png;
using test::error_of;
using test::Image;

Image decode(const std::string& file) {
  ImageDecoder decoder;
  const ImageSize size = decoder.open(bytes_of(file));
  const ImageRegion all{0, size.height, 0, size.width};
  return test::copy_of(decoder.decode(1, all), all);
}

TEST(Png, RgbIsExact) {
  const Image image = test::make_image(21, 34);
  EXPECT_EQ(decode(test::encode_png(image)).pixels, image.pixels);
  EXPECT_EQ(decode(test::encode_png(21, 34, image.pixels, {.interlaced = true})).pixels,
            image.pixels);
}

TEST(Png, GrayIsTripled) {
  EXPECT_EQ(decode(test::encode_png(1, 3, {0, 7, 255}, {PNG_COLOR_TYPE_GRAY})).pixels,
            (std::vector<uint8_t>{0, 0, 0, 7, 7, 7, 255, 255, 255}));
  // Two bits: 0b00'01'10'11.
  EXPECT_EQ(decode(test::encode_png(1, 4, {0x1b}, {PNG_COLOR_TYPE_GRAY, 2})).pixels,
            (std::vector<uint8_t>{0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255}));
}

TEST(Png, AlphaIsDropped) {
  EXPECT_EQ(
      decode(test::encode_png(1, 2, {1, 2, 3, 0, 4, 5, 6, 128}, {PNG_COLOR_TYPE_RGBA})).pixels,
      (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(decode(test::encode_png(1, 2, {9, 0, 8, 255}, {PNG_COLOR_TYPE_GRAY_ALPHA})).pixels,
            (std::vector<uint8_t>{9, 9, 9, 8, 8, 8}));
}

TEST(Png, PalettesAreLookedUp) {
  EXPECT_EQ(
      decode(test::encode_png(1, 2, {1, 0}, {PNG_COLOR_TYPE_PALETTE}, {{10, 20, 30}, {40, 50, 60}}))
          .pixels,
      (std::vector<uint8_t>{40, 50, 60, 10, 20, 30}));
}

TEST(Png, SixteenBitsAreRounded) {
  // 0x8180 is 128.996 of 255, 0x0080 0.498.
  EXPECT_EQ(
      decode(test::encode_png(1, 2, {0x81, 0x80, 0x00, 0x80}, {PNG_COLOR_TYPE_GRAY, 16})).pixels,
      (std::vector<uint8_t>{129, 129, 129, 0, 0, 0}));
}

TEST(Png, DamageIsNoticed) {
  const std::string file = test::encode_png(test::make_image(30, 20));
  for (size_t length = 8; length < file.size(); length += 7)
    EXPECT_NE(error_of([&] { decode(file.substr(0, length)); }), "no error") << length;
  int noticed = 0;
  for (size_t at = 8; at < file.size(); at += 5) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    try {
      decode(damaged);
    } catch (const DataError&) {
      ++noticed;
    }
  }
  // Checksums are over everything; only chunks that nobody needs may be damaged unnoticed.
  EXPECT_GE(noticed, static_cast<int>((file.size() - 8) / 5) - 4);
}

TEST(Png, RefusesHugeImages) {
  std::string file = test::encode_png(test::make_image(8, 8));
  file[16] = file[20] = 0x7f;
  test::expect_parts(error_of([&] { decode(file); }), {"2130706440 x 2130706440", "allowed"});
  file[16] = file[20] = 0;
  file[18] = file[22] = 0x20;  // 8200 x 8200: allowed, but not in 200 bytes
  test::expect_parts(error_of([&] { decode(file); }), {"truncated"});
}

}  // namespace
}  // namespace lockstep::data

// Catches masks that are cropped, shifted or flipped otherwise than their images, palettes that are
// read as colours, and masks that do not fit their images or have numbers that are no class.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "files.h"
#include "images.h"
#include "runtime/data/format.h"
#include "runtime/data/placeholder.h"

namespace lockstep::data {
namespace {

using test::encode_png;
using test::error_of;
using test::expect_parts;

constexpr int kHeight = 6, kWidth = 8, kClasses = 48;

config::ModelTraits segmenter(int64_t classes = kClasses) {
  return {.section = "onnx",
          .file = "net.onnx",
          .input = config::ModelInput::kImages,
          .outputs = classes,
          .outputs_field = "file",
          .pixel_classes = true};
}

// Every pixel has a number of its own; a grey image and its mask have the same ones.
std::vector<uint8_t> counting(int height = kHeight, int width = kWidth) {
  std::vector<uint8_t> numbers(static_cast<size_t>(height * width));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i);
  return numbers;
}

std::string grey(const std::vector<uint8_t>& numbers, int height = kHeight, int width = kWidth) {
  return encode_png(height, width, numbers, {.type = PNG_COLOR_TYPE_GRAY});
}

class MaskedImages : public ::testing::Test {
 protected:
  MaskedImages() {
    for (const char* folder : {"images", "masks"})
      std::filesystem::create_directory(std::filesystem::path(folder_.path()) / folder);
    pair("a", counting());
    config_.dir = folder_.path();
    config_.image.size = 6;
    config_.image.resize = 6;
    masked_.train = "images";
    masked_.train_masks = "masks";
  }
  void pair(const std::string& name, const std::vector<uint8_t>& mask) {
    folder_.write("images/" + name + ".png", grey(counting()));
    folder_.write("masks/" + name + ".png", grey(mask));
  }
  OpenedData open(const config::ModelTraits& model = segmenter()) {
    config_.source = masked_;
    return open_data(config_, model, 1, true);
  }
  // The mask of sample 0, and the first channel of its pixels, in one epoch.
  void read(const Dataset& dataset, int64_t epoch) {
    const auto sample = test::read<uint8_t, int32_t>(dataset, {0, epoch, epoch > 0});
    classes_ = sample.target;
    pixels_.clear();
    for (size_t i = 0; i < sample.input.size(); i += 3) pixels_.push_back(sample.input[i]);
  }

  test::TemporaryFolder folder_;
  DataConfig config_;
  MaskedImagesConfig masked_;
  std::vector<int32_t> classes_, pixels_;
};

TEST_F(MaskedImages, TheMaskFollowsTheImage) {
  const OpenedData opened = open();
  EXPECT_EQ(opened.train->target().shape, (Shape{6, 6}));
  EXPECT_EQ(opened.train->target().dtype, DType::kI32);
  EXPECT_EQ(opened.summary.classes, kClasses);
  read(*opened.train, 0);
  EXPECT_EQ(classes_, pixels_);  // the centre, in the size in which it is stored
  EXPECT_EQ(classes_[0], 1);
  EXPECT_EQ(classes_[35], 46);
}

// Crops of the stored size need no resampling, so that pixels and classes stay equal.
TEST_F(MaskedImages, ShiftsAndFlipsAreTheSame) {
  config_.augment.pad_and_crop.emplace().padding = 2;
  config_.augment.horizontal_flip = 0.5f;
  const OpenedData opened = open();
  bool padded = false, flipped = false;
  for (int64_t epoch = 1; epoch < 40; ++epoch) {
    read(*opened.train, epoch);
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i] != -1) {
        ASSERT_EQ(classes_[i], pixels_[i]) << epoch << " " << i;
        continue;
      }
      padded = true;
      ASSERT_EQ(pixels_[i], 0);
    }
    for (size_t i = 1; i < 6; ++i)
      if (classes_[12 + i] >= 0 && classes_[11 + i] > classes_[12 + i]) flipped = true;
  }
  EXPECT_TRUE(padded);
  EXPECT_TRUE(flipped);
}

// The nearest pixel of a ramp is within one pixel of the interpolated one.
TEST_F(MaskedImages, ACropIsTheSame) {
  std::vector<uint8_t> ramp;
  for (int i = 0; i < kHeight * kWidth; ++i) ramp.push_back(static_cast<uint8_t>(4 * (i % kWidth)));
  folder_.write("images/a.png", grey(ramp));
  folder_.write("masks/a.png", grey(ramp));
  config_.augment.random_resized_crop.emplace().scale = {0.3f, 1};
  config_.augment.horizontal_flip = 0.5f;
  const OpenedData opened = open();
  for (int64_t epoch = 1; epoch < 20; ++epoch) {
    read(*opened.train, epoch);
    for (size_t i = 0; i < classes_.size(); ++i) {
      ASSERT_LE(std::abs(classes_[i] - pixels_[i]), 4) << epoch << " " << i;
      ASSERT_EQ(classes_[i] % 4, 0);
    }
  }
}

TEST_F(MaskedImages, NumbersAreNotScaledAndNotLookedUp) {
  const std::vector<png_color> palette = {{9, 9, 9}, {200, 0, 0}, {0, 200, 0}, {0, 0, 200}};
  const std::vector<uint8_t> two_bits(kHeight * 2, 0x1b);  // 0 1 2 3
  for (const int type : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_PALETTE}) {
    folder_.write("masks/a.png",
                  encode_png(kHeight,
                             kWidth,
                             two_bits,
                             {.type = type, .depth = 2},
                             type == PNG_COLOR_TYPE_GRAY ? std::vector<png_color>{} : palette));
    read(*open(segmenter(4)).train, 0);
    for (size_t i = 0; i < classes_.size(); ++i)
      EXPECT_EQ(classes_[i], static_cast<int>(i % 6 + 1) % 4) << type;
  }
}

TEST_F(MaskedImages, TheIgnoredNumberDoesNotCount) {
  std::vector<uint8_t> mask(kHeight * kWidth, 2);
  mask[9] = 255;
  pair("a", mask);
  const auto second = [&] {
    read(*open(segmenter(3)).train, 0);
    return classes_[6];
  };
  EXPECT_EQ(second(), -1);
  mask[9] = 0;
  pair("a", mask);
  EXPECT_EQ(second(), 0);
  masked_.ignore = 0;
  EXPECT_EQ(second(), -1);
}

TEST_F(MaskedImages, ErrorsNameFileAndPixel) {
  std::vector<uint8_t> mask(kHeight * kWidth, 2);
  mask[10] = 7;
  pair("b", mask);
  expect_parts(
      error_of([&] { open(segmenter(3)); }),
      {"images/a.png", "masks/a.png", "pixel (x 3, y 0)", "is 3", "0..2 or 255", "ignore"});
  pair("a", std::vector<uint8_t>(kHeight * kWidth, 1));
  expect_parts(error_of([&] { open(segmenter(3)); }),
               {"images/b.png", "masks/b.png", "pixel (x 2, y 1)", "is 7", "0..2"});
  masked_.ignore = 7;
  open(segmenter(3));
  folder_.write("masks/b.png", grey(counting(kWidth, kHeight), kWidth, kHeight));
  expect_parts(error_of([&] { open(); }),
               {"images/b.png", "6 x 8 pixels", "the image 8 x 6", "EXIF"});
  folder_.write("masks/b.png", encode_png(test::make_image(kHeight, kWidth)));
  expect_parts(error_of([&] { open(); }), {"masks/b.png", "RGB colours", "palette"});
  folder_.write("masks/b.png",
                encode_png(kHeight,
                           kWidth,
                           std::vector<uint8_t>(2 * kHeight * kWidth),
                           {.type = PNG_COLOR_TYPE_GRAY, .depth = 16}));
  expect_parts(error_of([&] { open(); }), {"masks/b.png", "16 bits a pixel"});
  folder_.write("masks/b.png", "no image");
  expect_parts(error_of([&] { open(); }), {"masks/b.png", "not a PNG file"});
}

TEST_F(MaskedImages, EveryImageHasAMask) {
  folder_.write("images/b.png", grey(counting()));
  expect_parts(error_of([&] { open(); }), {"images/b.png", "has no mask", "masks/b.png", "SKIP"});
  config_.bad_records = BadRecords::kSkip;
  config_.max_bad_fraction = 0.5f;
  const OpenedData skipped = open();
  EXPECT_EQ(skipped.train->samples(), 1);
  EXPECT_EQ(skipped.summary.bad_records, 1);
  pair("b", counting());
  folder_.write("masks/c.png", grey(counting()));
  const OpenedData opened = open();
  ASSERT_EQ(opened.summary.warnings.size(), 1U);
  expect_parts(opened.summary.warnings[0], {"1 mask has no image", "c.png"});
  folder_.write("images/b.jpg", test::encode_jpeg(test::make_image(kHeight, kWidth)));
  expect_parts(error_of([&] { open(); }), {"images/b.png", "another image of that name"});
}

// A bad mask makes its image a bad record.
TEST_F(MaskedImages, ABadMaskIsReplaced) {
  pair("b", std::vector<uint8_t>(kHeight * kWidth, 99));
  config_.bad_records = BadRecords::kSkip;
  config_.max_bad_fraction = 0.5f;
  const OpenedData opened = open();
  const auto a = test::read<uint8_t, int32_t>(*opened.train, {0, 0, false});
  const auto b = test::read<uint8_t, int32_t>(*opened.train, {1, 0, false});
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(opened.train->bad_records(), 1);
}

TEST_F(MaskedImages, ClassesThatNoPixelHasAreReported) {
  pair("a", std::vector<uint8_t>(kHeight * kWidth, 2));
  const OpenedData opened = open(segmenter(3));
  ASSERT_FALSE(opened.summary.warnings.empty());
  expect_parts(opened.summary.warnings[0], {"masks", "48", "pixel"});
}

TEST_F(MaskedImages, InputsNeedNoMasks) {
  masked_.eval = "images";
  config_.source = masked_;
  const OpenedData without = open_inputs(config_, segmenter(), 1);
  read(*without.eval, 0);
  EXPECT_EQ(classes_, std::vector<int32_t>(36, -1));
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage),
               {"data.masked_images.eval_masks", "missing"});
  masked_.eval_masks = "masks";
  pair("a", std::vector<uint8_t>(kHeight * kWidth, 77));
  config_.source = masked_;
  read(*open_inputs(config_, segmenter(), 1).eval, 0);
  EXPECT_EQ(classes_, std::vector<int32_t>(36, -1));  // 77 is no class
}

TEST_F(MaskedImages, TheChecksumDependsOnMasks) {
  const uint64_t before = open().train->checksum();
  EXPECT_EQ(open().train->checksum(), before);
  std::vector<uint8_t> mask = counting();
  mask[0] = 5;
  pair("a", mask);
  EXPECT_NE(open().train->checksum(), before);
}

TEST_F(MaskedImages, APlanNeedsNoFiles) {
  masked_.train = "elsewhere";
  config_.source = masked_;
  const OpenedData opened = open_data_or_placeholder(config_, segmenter(5), 1);
  EXPECT_EQ(opened.train->target().shape, (Shape{6, 6}));
  EXPECT_EQ(opened.summary.classes, 5);
}

TEST_F(MaskedImages, APartIsHeldOut) {
  for (const char* name : {"b", "c", "d", "e", "f"}) pair(name, counting());
  config_.eval_fraction = 0.4f;
  const OpenedData opened = open();
  EXPECT_EQ(opened.train->samples() + opened.eval->samples(), 6);
  EXPECT_EQ(opened.eval->target().shape, (Shape{6, 6}));
}

TEST_F(MaskedImages, OtherModelsAndFormatsAreRefused) {
  config::ModelTraits classifier = segmenter();
  classifier.pixel_classes = false;
  expect_parts(error_of([&] { open(classifier); }, ExitCode::kUsage),
               {"data.masked_images", "data.image_folder"});
  config_.source = ImageFolderConfig{.train = "images", .eval = ""};
  expect_parts(error_of([&] { open_data(config_, segmenter(), 1, true); }, ExitCode::kUsage),
               {"data.image_folder", "data.masked_images", "a class for each pixel"});
  config_.source = masked_;
  config_.balance_classes = true;
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage), {"data.balance_classes"});
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& values) {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string file = std::string("\x93NUMPY\x01\0", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + values;
}

// The class of a pixel counts the light channels of its cell.
TEST_F(MaskedImages, SyntheticImagesHaveMasks) {
  config_.source = SyntheticConfig{
      .samples = 4, .features = 1, .classes = 3, .height = 16, .width = 16, .channels = 1};
  config_.image = {};
  const OpenedData opened = open_data(config_, segmenter(3), 1, true);
  const auto sample = test::read<uint8_t, int32_t>(*opened.train, {1, 0, false});
  int64_t sums[2] = {}, counts[2] = {};
  for (size_t i = 0; i < sample.input.size(); ++i) {
    ASSERT_GE(sample.target[i], 0);
    ASSERT_LE(sample.target[i], 1);
    sums[sample.target[i]] += sample.input[i];
    ++counts[sample.target[i]];
  }
  EXPECT_GT(sums[1] / counts[1], sums[0] / counts[0] + 50);
}

TEST_F(MaskedImages, ArraysHaveMasksToo) {
  NpyConfig arrays;
  arrays.train_inputs = folder_.write("x.npy", npy("|u1", "(2, 2, 2)", std::string(8, '\1')));
  arrays.train_labels =
      folder_.write("y.npy", npy("|u1", "(2, 2, 2)", std::string("\0\1\2\xff\2\2\2\2", 8)));
  config_.source = arrays;
  config_.image = {};
  const auto sample = [&](int64_t index) {
    return test::read<uint8_t, int32_t>(*open_data(config_, segmenter(3), 1, true).train,
                                        {index, 0, false})
        .target;
  };
  EXPECT_EQ(sample(0), (std::vector<int32_t>{0, 1, 2, -1}));
  EXPECT_EQ(sample(1), (std::vector<int32_t>{2, 2, 2, 2}));
  folder_.write("y.npy", npy("|u1", "(2, 2, 2)", std::string("\0\1\2\3\2\2\2\2", 8)));
  expect_parts(error_of([&] { sample(0); }), {"y.npy", "sample 0", "(x 1, y 1)", "is 3", "0..2"});
  std::string numbers(8 * 4, '\0');
  const int32_t none = -1;
  std::memcpy(numbers.data() + 4, &none, 4);
  folder_.write("y.npy", npy("<i4", "(2, 2, 2)", numbers));
  EXPECT_EQ(sample(0), (std::vector<int32_t>{0, -1, 0, 0}));
  folder_.write("y.npy", npy("|u1", "(2, 4)", std::string(8, '\0')));
  expect_parts(error_of([&] { sample(0); }), {"y.npy", "2 dimensions", "allowed: 3"});
  folder_.write("y.npy", npy("|u1", "(2, 1, 4)", std::string(8, '\0')));
  expect_parts(error_of([&] { sample(0); }), {"y.npy", "4 x 1 pixels", "2 x 2"});
  folder_.write("y.npy", npy("<f4", "(2, 2, 2)", std::string(32, '\0')));
  expect_parts(error_of([&] { sample(0); }), {"y.npy", "float32", "uint8"});
}

}  // namespace
}  // namespace lockstep::data

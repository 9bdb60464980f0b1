// Folders, IDX files and synthetic images. Catches classes in another order, files that are
// missed, and images that differ from those that other models see.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "files.h"
#include "images.h"
#include "runtime/data/dataset.h"
#include "runtime/data/format.h"
#include "runtime/data/images/image_dataset.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

class ImageFolder : public ::testing::Test {
 protected:
  ImageFolder() {
    add("train/dog/b.PNG", 2);
    add("train/dog/a.jpeg", 1);
    add("train/cat/sub/z.JPG", 0);
    add("train/cat/notes.txt", 0);
    add("train/README", 0);
    add("eval/dog/x.png", 5);
    config_.dir = folder_.path();
    config_.image.size = 8;
  }
  void add(const std::string& name, int kind) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    const test::Image image = test::make_image(9, 9, 3, kind);
    const bool png = name.ends_with("PNG") || name.ends_with("png");
    std::ofstream(path, std::ios::binary)
        << (png ? test::encode_png(image) : test::encode_jpeg(image));
  }
  OpenedData open(const std::string& train, const std::string& eval, bool need_train = true) {
    config_.source = ImageFolderConfig{train, eval};
    return test::open_images(config_, 1, need_train);
  }
  std::string name(const Dataset& dataset, int64_t index) {
    const std::string name = dynamic_cast<const ImageDataset&>(dataset).store().name(index);
    return name.substr(folder_.path().string().size() + 1);
  }
  test::TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(ImageFolder, ClassesAndFilesAreSorted) {
  const OpenedData opened = open("train", "eval");
  ASSERT_EQ(opened.train->samples(), 3);
  EXPECT_EQ(opened.summary.classes, 2);
  EXPECT_EQ(name(*opened.train, 0), "train/cat/sub/z.JPG");
  EXPECT_EQ(name(*opened.train, 1), "train/dog/a.jpeg");
  EXPECT_EQ(name(*opened.train, 2), "train/dog/b.PNG");
  const auto label = [](const Dataset& data, int64_t i) {
    return test::read<uint8_t, int32_t>(data, {.index = i}).target[0];
  };
  EXPECT_EQ(label(*opened.train, 0), 0);
  EXPECT_EQ(label(*opened.train, 2), 1);
  EXPECT_EQ(label(*opened.eval, 0), 1);  // the only folder, but the second class
  expect_parts(opened.summary.description,
               {"2 other files", "3 training and 1 evaluation", "8 x 8"});
  EXPECT_EQ(open("train", "eval", false).summary.classes, 2);
}

TEST_F(ImageFolder, NamesOfClassesAreComparedInOneForm) {
  const std::string composed = "\xC3\x9C", decomposed = "U\xCC\x88";
  add("de/" + composed + "/a.png", 1);
  add("de/b/a.png", 1);
  add("mac/" + decomposed + "/a.png", 1);
  const OpenedData opened = open("de", "mac");
  EXPECT_EQ(opened.summary.classes, 2);
  EXPECT_EQ((test::read<uint8_t, int32_t>(*opened.eval, {.index = 0}).target[0]), 1);
  add("de/" + decomposed + "/a.png", 1);
  expect_parts(error_of([&] { open("de", ""); }), {"U+00DC", "U+0055 U+0308", "look the same"});
}

TEST_F(ImageFolder, WarnsOfAClassWithoutAnImage) {
  std::filesystem::create_directories(folder_.path() / "train/eel");
  const OpenedData opened = open("train", "");
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0],
               {"data.image_folder: 1 of 3 classes has no training sample: 'eel'"});
}

// Where only outputs are wanted, images may lie anywhere in the folder, and
// the training images elsewhere, if the model knows how many classes there are.
TEST_F(ImageFolder, InputsNeedNoClasses) {
  add("new/b.png", 1);
  add("new/a/c.jpg", 1);
  add("new/a/z/d.png", 1);
  const auto inputs = [&](const std::string& train, const std::string& eval, int64_t outputs) {
    config_.source = ImageFolderConfig{train, eval};
    return open_inputs(
        config_,
        {.section = "resnet", .input = config::ModelInput::kImages, .outputs = outputs},
        1);
  };
  const OpenedData opened = inputs("train", "new", 0);
  ASSERT_EQ(opened.eval->samples(), 3);
  EXPECT_EQ(name(*opened.eval, 0), "new/a/c.jpg");
  EXPECT_EQ(name(*opened.eval, 1), "new/a/z/d.png");
  EXPECT_EQ(name(*opened.eval, 2), "new/b.png");
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(inputs("train", "eval", 0).eval->samples(), 1);
  // An image in the folder of a class has it.
  add("mixed/cat.png", 1);
  add("mixed/dog/x/e.png", 1);
  add("mixed/other/cat/f.png", 1);
  const OpenedData mixed = inputs("train", "mixed", 0);
  std::vector<std::pair<std::string, int32_t>> labels;
  for (int64_t i = 0; i < mixed.eval->samples(); ++i)
    labels.emplace_back(name(*mixed.eval, i), mixed.eval->label(i));
  EXPECT_EQ(labels,
            (std::vector<std::pair<std::string, int32_t>>{
                {"mixed/cat.png", -1}, {"mixed/dog/x/e.png", 1}, {"mixed/other/cat/f.png", -1}}));
  const OpenedData alone = inputs("absent", "new", 5);
  EXPECT_EQ(alone.summary.classes, 5);
  EXPECT_TRUE(alone.summary.class_names.empty());
  expect_parts(error_of([&] { inputs("absent", "new", 0); }),
               {"data.image_folder.train", "absent"});
  std::filesystem::create_directories(folder_.path() / "none");
  expect_parts(error_of([&] { inputs("train", "none", 0); }), {"none", "no .jpg"});
}

TEST_F(ImageFolder, ErrorsNameFolders) {
  expect_parts(error_of([&] { open("absent", ""); }), {"data.image_folder.train", "absent"});
  expect_parts(error_of([&] { open("eval", "train"); }), {"train/cat", "classes"});
  expect_parts(error_of([&] { open("train/dog", ""); }), {"train/dog", "no folders"});
  std::filesystem::create_directories(folder_.path() / "none/class");
  expect_parts(error_of([&] { open("none", ""); }), {"none", "no .jpg"});
}

TEST_F(ImageFolder, HiddenFilesAndFoldersArePassedOver) {
  add("train/.ipynb_checkpoints/a.jpg", 3);
  add("train/lost+found/a.jpg", 3);
  add("train/__MACOSX/cat/a.jpg", 3);
  add("train/dog/.hidden/a.jpg", 3);
  const auto write = [&](const char* name) { std::ofstream(folder_.path() / name) << "no image"; };
  for (const char* name : {"train/._cat", "train/dog/._a.jpeg", "train/.DS_Store", "eval/._dog"})
    write(name);
  const OpenedData opened = open("train", "eval");
  EXPECT_EQ(opened.train->samples(), 3);
  EXPECT_EQ(opened.eval->samples(), 1);
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"cat", "dog"}));
  expect_parts(opened.summary.description,
               {"8 hidden files and folders passed over", "2 other files ignored"});
  EXPECT_TRUE(opened.summary.warnings.empty());
}

TEST_F(ImageFolder, ClassesWithoutImagesAndOtherFormatsAreReported) {
  const auto write = [&](const char* name, const std::string& bytes) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::binary) << bytes;
  };
  write("train/ape/._a.jpg", "x");
  std::filesystem::create_directories(folder_.path() / "train/bee");
  write("train/dog/0.WEBP", std::string("RIFF\x10\0\0\0WEBPVP8 ", 16));
  write("train/dog/1.jfif", "\xFF\xD8\xFF\xE0");
  const std::vector<std::string> warnings = open("train", "").summary.warnings;
  ASSERT_EQ(warnings.size(), 2u);
  expect_parts(warnings[0], {"2 images are left out", "dog/0.WEBP, is a WebP image", "PIL"});
  expect_parts(warnings[1], {"no training sample", "'ape'", "'bee'"});
  config_.strict = true;
  expect_parts(error_of([&] { open("train", ""); }),
               {"dog/0.WEBP", "1 more warning", "data.strict"});
}

TEST_F(ImageFolder, AFolderWhoseNameLooksTheSameIsPointedOut) {
  add("U\xCC\x88/cat/a.png", 1);
  expect_parts(error_of([&] { open("\xC3\x9C", ""); }),
               {"data.image_folder.train", "U+0055 U+0308", "U+00DC"});
}

TEST_F(ImageFolder, LinksThatLeadInCirclesAreNamed) {
  const std::filesystem::path cat = folder_.path() / "train/cat";
  std::filesystem::create_symlink("loop", cat / "loop");
  expect_parts(error_of([&] { open("train", ""); }), {"train/cat/loop", "symbolic link to itself"});
  std::filesystem::remove(cat / "loop");
  std::filesystem::create_directory_symlink("..", cat / "sub/up");
  expect_parts(error_of([&] { open("train", ""); }),
               {"train/cat/sub/up", "symbolic link to a folder that contains it"});
}

// A pipe would be waited for.
TEST_F(ImageFolder, WhatIsNoFileIsRefused) {
  ASSERT_EQ(::mkfifo((folder_.path() / "train/cat/pipe.png").c_str(), 0600), 0);
  const OpenedData opened = open("train", "");
  expect_parts(error_of([&] { test::read<uint8_t, int32_t>(*opened.train, {.index = 0}); }),
               {"train/cat/pipe.png", "a pipe, not a regular file"});
}

// An unreadable file is no bad record: it fails whatever the policy.
TEST_F(ImageFolder, FilesThatVanishFail) {
  config_.bad_records = BadRecords::kSkip;
  config_.max_bad_fraction = 1;
  const OpenedData opened = open("train", "");
  std::filesystem::remove(folder_.path() / "train/dog/a.jpeg");
  expect_parts(error_of([&] { test::read<uint8_t, int32_t>(*opened.train, {.index = 1}); }),
               {"train/dog/a.jpeg", "No such file"});
}

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24),
          static_cast<char>(value >> 16),
          static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

TEST(IdxImages, AreTheBytesOfTheFile) {
  test::TemporaryFolder folder;
  std::string values;
  for (int i = 0; i < 24; ++i) values += static_cast<char>(i * 10);
  IdxConfig idx;
  idx.train_images = folder.write(
      "i", std::string("\0\0\x08\x03", 4) + big_endian(2) + big_endian(3) + big_endian(4) + values);
  idx.train_labels =
      folder.write("l", std::string("\0\0\x08\x01", 4) + big_endian(2) + std::string("\x02\0", 2));
  idx.mean = 0.1f;
  DataConfig config;
  config.dir = folder.path();
  config.source = idx;
  OpenedData opened = test::open_images(config, 1, true);
  EXPECT_EQ(opened.train->input().shape, (Shape{3, 4, 1}));
  EXPECT_EQ(opened.summary.classes, 3);
  EXPECT_EQ(opened.summary.mean, std::vector<float>{0.1f});
  const auto sample = test::read<uint8_t, int32_t>(*opened.train, {.index = 1});
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(sample.input[i], (i + 12) * 10);
  EXPECT_EQ(sample.target[0], 0);
  config.image.size = config.image.resize = 6;  // and of another size
  opened = test::open_images(config, 1, true);
  EXPECT_EQ(opened.train->input().shape, (Shape{6, 6, 1}));
  test::read<uint8_t, int32_t>(*opened.train, {.index = 1});
}

TEST(SyntheticImages, CanBeLearnt) {
  DataConfig config;
  SyntheticConfig synthetic;
  synthetic.samples = 300;
  synthetic.classes = 4;
  synthetic.height = 16;
  synthetic.width = 24;
  config.source = synthetic;
  const OpenedData opened = test::open_images(config, 3, true),
                   again = test::open_images(config, 3, true);
  EXPECT_EQ(opened.train->input().shape, (Shape{16, 24, 3}));
  EXPECT_EQ(opened.train->samples(), 300);
  // The mean images of the first half tell the classes of the second.
  std::vector<std::vector<double>> means(4, std::vector<double>(1152));
  std::vector<int> counts(4);
  int right = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const auto sample = test::read<uint8_t, int32_t>(*opened.train, {.index = i});
    EXPECT_EQ(sample.input, (test::read<uint8_t, int32_t>(*again.train, {.index = i}).input));
    const auto label = static_cast<size_t>(sample.target[0]);
    ASSERT_LT(label, 4u);
    if (i < 150) {
      ++counts[label];
      for (size_t j = 0; j < 1152; ++j) means[label][j] += sample.input[j];
      continue;
    }
    size_t best = 0;
    double least = 1e300;
    for (size_t c = 0; c < 4; ++c) {
      double distance = 0;
      for (size_t j = 0; j < 1152; ++j)
        distance += std::pow(means[c][j] / counts[c] - sample.input[j], 2);
      if (distance < least) {
        least = distance;
        best = c;
      }
    }
    right += best == label;
  }
  EXPECT_EQ(right, 150);
}

TEST(Normalisation, IsPerChannel) {
  DataConfig config;
  SyntheticConfig synthetic;
  synthetic.samples = 2;
  synthetic.channels = 2;
  config.source = synthetic;
  EXPECT_EQ(test::open_images(config, 1, true).summary.mean, (std::vector<float>{0.5f, 0.5f}));
  config.image.mean = {0.3f};
  EXPECT_EQ(test::open_images(config, 1, true).summary.mean, (std::vector<float>{0.3f, 0.3f}));
  config.image.mean = {0.1f, 0.2f, 0.3f};
  expect_parts(error_of([&] { test::open_images(config, 1, true); }, ExitCode::kUsage),
               {"data.image.mean: 3 values", "2 channels"});
  config.image.mean = {};
  config.augment.colour_jitter.emplace();
  expect_parts(error_of([&] { test::open_images(config, 1, true); }, ExitCode::kUsage),
               {"data.augment.colour_jitter", "with 3"});
  config.source = TextConfig{"t", "", 0};
  expect_parts(error_of([&] { test::open_images(config, 1, true); }, ExitCode::kUsage),
               {"an image model"});
}

}  // namespace
}  // namespace lockstep::data

// Real images, where they lie on this machine: catches what made-up files do not have.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "files.h"
#include "images.h"
#include "runtime/base/file.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/jpeg_decoder.h"
#include "runtime/data/images/tar.h"
#include "tars.h"

namespace lockstep::data {
namespace {

using test::copy_of;
using test::error_of;

class RealImages : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* given = std::getenv("LOCKSTEP_TEST_DATA");
    const std::filesystem::path root =
        given != nullptr ? given : LOCKSTEP_SOURCE_DIR "/../shared/data";
    path_ = root / GetParam();
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << "skipped: no " << path_
                   << "; set LOCKSTEP_TEST_DATA to a folder with data sets";
    if (path_.extension() != ".tar") return;
    tar_ = MappedFile(path_);
    TarReader reader(tar_.bytes(), path_.string());
    TarMember member;
    while (reader.next(&member)) members_.push_back(member);
  }
  std::filesystem::path path_;
  MappedFile tar_;
  std::vector<TarMember> members_;
};

class ImageNet : public RealImages {};
INSTANTIATE_TEST_SUITE_P(Tar, ImageNet, ::testing::Values("imagenet-samples/imagenet-100.tar"));

TEST_P(ImageNet, DecodeLikeThePlainLoop) {
  ASSERT_EQ(members_.size(), 100u);
  JpegDecoder decoder;
  int gray = 0;
  for (const TarMember& member : members_) {
    const ImageSize size = decoder.open(member.data);
    const ImageRegion all{0, size.height, 0, size.width};
    const test::Image found = copy_of(decoder.decode(1, all), all);
    const test::Image wanted = test::decode_plainly(member.data);
    ASSERT_EQ(wanted.channels, 3) << member.name;
    ASSERT_TRUE(found.pixels == wanted.pixels) << member.name;
    bool equal = true;
    for (size_t i = 0; equal && i < found.pixels.size(); i += 3)
      equal = found.pixels[i] == found.pixels[i + 1] && found.pixels[i] == found.pixels[i + 2];
    gray += equal;
  }
  EXPECT_GE(gray, 23);
}

TEST_P(ImageNet, RegionsAreThoseOfTheWhole) {
  JpegDecoder decoder;
  std::mt19937 random(3);
  for (const TarMember& member : members_) {
    for (int denominator : {1, 2, 4, 8}) {
      const test::Image whole = test::decode_plainly(member.data, denominator);
      const ImageSize size = JpegDecoder::shrunk(decoder.open(member.data), denominator);
      ASSERT_EQ(size, (ImageSize{whole.height, whole.width}));
      ImageRegion region;
      region.top = static_cast<int>(random() % size.height);
      region.bottom = region.top + 1 + static_cast<int>(random() % (size.height - region.top));
      region.left = static_cast<int>(random() % size.width);
      region.right = region.left + 1 + static_cast<int>(random() % (size.width - region.left));
      ASSERT_TRUE(copy_of(decoder.decode(denominator, region), region).pixels ==
                  test::part_of(whole, region).pixels)
          << member.name << " 1/" << denominator;
    }
  }
}

// Twenty damaged ones among the hundred, as a data set under each policy.
TEST_P(ImageNet, DamagedOnesFollowThePolicy) {
  test::TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> files;
  std::mt19937 random(4);
  for (size_t i = 0; i < members_.size(); ++i) {
    std::string jpeg(reinterpret_cast<const char*>(members_[i].data.data()),
                     members_[i].data.size());
    if (i % 10 == 3) jpeg.resize(jpeg.size() * (1 + random() % 9) / 10);  // truncated
    if (i % 10 == 7)  // a piece of the image's data is overwritten with an end marker
      jpeg.replace(jpeg.size() / 2, 2, "\xff\xd9");
    files.emplace_back(fmt::format("{:03}.jpg", i), jpeg);
    files.emplace_back(fmt::format("{:03}.cls", i), std::to_string(i));
  }
  DataConfig config;
  config.dir = folder.path();
  config.source = TarShardsConfig{{folder.write("t.tar", test::tar_of(files))}, {}, 0, 100};
  config.image.size = 64;
  config.augment.random_resized_crop.emplace();
  const auto label = [](const OpenedData& data, int64_t i) {
    return test::read<uint8_t, int32_t>(*data.train, {.index = i, .augment = true}).target[0];
  };
  const OpenedData strict = test::open_images(config, 1, true);
  test::expect_parts(error_of([&] { label(strict, 13); }), {"t.tar: 013.jpg", "damaged"});
  config.bad_records = BadRecords::kReplace;
  config.max_bad_fraction = 0.2f;
  const OpenedData opened = test::open_images(config, 1, true);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(label(opened, i), i % 10 == 3 || i % 10 == 7 ? i + 1 : i) << i;
  EXPECT_EQ(opened.train->bad_records(), 20);
}

class CifarBatches : public RealImages {};
INSTANTIATE_TEST_SUITE_P(Folder, CifarBatches, ::testing::Values("cifar-10"));

TEST_P(CifarBatches, HaveTheirKnownCounts) {
  DataConfig config;
  config.dir = path_.string();
  config.source = CifarConfig{{"data_batch_1.bin.gz"}, {"test_batch_first1000.bin.gz"}, 10, false};
  const OpenedData opened = test::open_images(config, 1, true);
  EXPECT_EQ(opened.summary.eval_samples, 1000);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < opened.train->samples(); ++i)
    ++counts.at(
        static_cast<size_t>(test::read<uint8_t, int32_t>(*opened.train, {.index = i}).target[0]));
  EXPECT_EQ(counts, (std::vector<int>{1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981}));
}

}  // namespace
}  // namespace lockstep::data

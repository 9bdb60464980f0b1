// Whole batches of images. Catches bits that depend on threads, ranks or what was read before,
// augmentation that is not what was drawn, and bad images that change more than themselves.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "files.h"
#include "images.h"
#include "runtime/data/dataset.h"
#include "runtime/data/loader.h"
#include "tars.h"
#include "test_loader.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

constexpr int kImages = 40;

class Images : public ::testing::Test {
 protected:
  Images() {
    config_.dir = folder_.path();
    config_.source = TarShardsConfig{{"s-{0..3}.tar"}, {"s-0.tar"}, 0, 16};
    config_.image.size = 24;
    config_.augment.random_resized_crop.emplace();
    config_.augment.horizontal_flip = 0.5f;
    config_.augment.pad_and_crop = PadAndCropConfig{3};
    config_.augment.colour_jitter = ColourJitterConfig{0.4f, 0.4f, 0.4f, 0.1f};
    write({});
  }

  // Four shards of ten JPEGs of many sizes; the ones in `broken` are cut in half.
  void write(const std::vector<int>& broken) {
    for (int shard = 0; shard < 4; ++shard) {
      std::vector<std::pair<std::string, std::string>> members;
      for (int i = 10 * shard; i < 10 * shard + 10; ++i) {
        std::string jpeg = test::encode_jpeg(
            test::make_image(30 + 7 * i % 90, 40 + 11 * i % 120, i % 5 == 0 ? 1 : 3, i));
        if (std::count(broken.begin(), broken.end(), i) > 0) jpeg.resize(jpeg.size() / 2);
        members.emplace_back(fmt::format("image{:02}.jpg", i), jpeg);
        members.emplace_back(fmt::format("image{:02}.cls", i), std::to_string(i));
      }
      folder_.write(fmt::format("s-{}.tar", shard), test::tar_of(members));
    }
  }

  // Batches of `steps` steps of lanes [first, first + local) of 4, 3 samples each.
  std::string batches(const Dataset& dataset,
                      int first,
                      int local,
                      int threads,
                      int64_t first_step = 0,
                      int64_t steps = 11,
                      bool training = true) {
    LoaderOptions options;
    options.geometry = {3, 4, first, local};
    options.seed = 5;
    options.shuffle = training;
    options.training = training;
    options.first_step = first_step;
    options.threads = threads;
    test::TestLoader images(dataset, options);
    std::string text;
    for (int64_t step = 0; step < steps; ++step) {
      const LaneBatch* lanes = images.loader.next();
      if (lanes == nullptr) break;
      for (int lane = 0; lane < local; ++lane) {
        text += std::to_string(lanes[lane].valid_samples);
        text.append(reinterpret_cast<const char*>(lanes[lane].input), 3 * dataset.input().bytes());
        text.append(reinterpret_cast<const char*>(lanes[lane].target), 12);
      }
    }
    return text;
  }

  test::TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(Images, AreTheSameWithAnyNumberOfThreads) {
  const OpenedData opened = test::open_images(config_, 1, true);
  const std::string one = batches(*opened.train, 0, 4, 1);
  for (int threads : {2, 4, 7}) EXPECT_EQ(batches(*opened.train, 0, 4, threads), one) << threads;
  EXPECT_NE(batches(*opened.train, 0, 4, 1, 1), one);
  const std::string evaluation = batches(*opened.eval, 0, 4, 1, 0, 9, false);
  EXPECT_EQ(batches(*opened.eval, 0, 4, 3, 0, 9, false), evaluation);
}

TEST_F(Images, AreTheSameOnAnyNumberOfRanks) {
  const OpenedData opened = test::open_images(config_, 1, true);
  const std::string all = batches(*opened.train, 0, 4, 2, 0, 1);
  EXPECT_EQ(batches(*opened.train, 0, 2, 1, 0, 1) + batches(*opened.train, 2, 2, 2, 0, 1), all);
  // A rank of its own process: a store of its own.
  const OpenedData other = test::open_images(config_, 1, true);
  EXPECT_EQ(batches(*other.train, 1, 1, 1, 7, 1),
            batches(*opened.train, 1, 1, 2, 0, 8).substr(7 * all.size() / 4));
}

TEST_F(Images, ResumeInTheMiddleOfAnEpoch) {
  const OpenedData opened = test::open_images(config_, 1, true);
  const std::string all = batches(*opened.train, 0, 4, 2);
  for (int64_t step : {1, 3, 5})
    EXPECT_EQ(batches(*opened.train, 0, 4, 3, step, 11 - step), all.substr(all.size() / 11 * step));
}

TEST_F(Images, AugmentAnewEveryEpoch) {
  const OpenedData opened = test::open_images(config_, 1, true);
  const auto read = [&](int64_t epoch, bool augment) {
    return test::read<uint8_t, int32_t>(*opened.train,
                                        {.index = 7, .epoch = epoch, .augment = augment})
        .input;
  };
  EXPECT_NE(read(0, true), read(1, true));
  EXPECT_EQ(read(3, true), read(3, true));
  EXPECT_EQ(read(0, false), read(1, false));
  const OpenedData other_seed = test::open_images(config_, 2, true);
  EXPECT_NE((test::read<uint8_t, int32_t>(*other_seed.train, {.index = 7, .augment = true}).input),
            read(0, true));
}

// Evaluation: the shorter side to `resize`, then the centre, against the plain loop and one double
// sum per pixel.
TEST_F(Images, EvaluateOnTheResizedCentre) {
  config_.image.resize = 30;
  const OpenedData opened = test::open_images(config_, 1, true);
  const int index = 13;  // (30 + 91 % 90) x (40 + 143 % 120) = 31 x 63
  const auto found =
      test::read<uint8_t, int32_t>(*opened.train, {.index = index, .augment = false}).input;
  const std::string jpeg = test::encode_jpeg(test::make_image(31, 63, 3, index));
  const test::Image whole = test::decode_plainly(test::bytes_of(jpeg));
  const double scale_y = 31.0 / 30, scale_x = 63.0 / (63 * 30 / 31);
  const auto weight = [](int i, double centre, double support) {
    return std::max(0.0, 1 - std::abs(i + 0.5 - centre) / support);
  };
  for (int y = 0; y < 24; ++y)
    for (int x = 0; x < 24; ++x)
      for (int c = 0; c < 3; ++c) {
        const double cy = (y + 3.5) * scale_y, cx = (x + 18.5) * scale_x;  // (60 - 24) / 2 = 18
        double sum = 0, total = 0;
        for (int i = 0; i < 31; ++i)
          for (int j = 0; j < 63; ++j) {
            const double w = weight(i, cy, scale_y) * weight(j, cx, scale_x);
            sum += w * whole.at(i, j)[c];
            total += w;
          }
        ASSERT_NEAR(found[static_cast<size_t>((y * 24 + x) * 3 + c)], sum / total, 0.51)
            << y << ", " << x;
      }
}

// Of an image four times as large as the output, the decoder could leave away three quarters.
// Evaluation does not, nor training with exact_jpeg.
TEST_F(Images, EvaluationDecodesInFull) {
  const test::Image image = test::make_image(100, 100, 3, 3);
  const std::string jpeg = test::encode_jpeg(image);
  folder_.write("c.tar", test::tar_of({{"a.jpg", jpeg}, {"a.cls", "0"}}));
  const test::Image whole = test::decode_plainly(test::bytes_of(jpeg));
  folder_.write("p.tar", test::tar_of({{"a.png", test::encode_png(whole)}, {"a.cls", "0"}}));
  const auto read = [&](const char* tar, bool training, bool exact) {
    DataConfig config;
    config.dir = folder_.path();
    config.source = TarShardsConfig{{tar}, {}, 0, 16};
    config.image.size = config.image.resize = 25;
    config.image.exact_jpeg = exact;
    const OpenedData opened = test::open_images(config, 1, true);
    return test::read<uint8_t, int32_t>(*opened.train, {.index = 0, .augment = training}).input;
  };
  const auto expected = read("p.tar", false, false);  // a PNG file of the same pixels
  EXPECT_EQ(read("c.tar", false, false), expected);
  EXPECT_EQ(read("c.tar", true, true), expected);
  EXPECT_NE(read("c.tar", true, false), expected);
}

// torchvision's int(round(x)): halves to even.
TEST_F(Images, TheCentreIsThatOfTorchvision) {
  config_.image.size = config_.image.resize = 8;
  for (const auto& [width, left] : {std::pair(9, 0), {11, 2}, {13, 2}, {15, 4}, {12, 2}}) {
    const test::Image image = test::make_image(8, width, 3, 1);
    folder_.write("c.tar", test::tar_of({{"a.png", test::encode_png(image)}, {"a.cls", "0"}}));
    config_.source = TarShardsConfig{{"c.tar"}, {}, 0, 16};
    const OpenedData opened = test::open_images(config_, 1, true);
    EXPECT_EQ((test::read<uint8_t, int32_t>(*opened.train, {.index = 0}).input),
              test::part_of(image, {0, 8, left, left + 8}).pixels)
        << width;
  }
}

// CIFAR's augmentation: shifts with black borders and flips, of the stored pixels.
TEST_F(Images, PadAndCropShiftsPixels) {
  std::string file;
  for (int r = 0; r < 20; ++r) {
    file += '\x01';
    for (int i = 0; i < 3072; ++i) file += static_cast<char>(1 + (i * 7 + r) % 255);
  }
  config_ = {};
  config_.dir = folder_.path();
  config_.source = CifarConfig{{folder_.write("c", file)}, {}, 10, false};
  config_.augment.pad_and_crop.emplace();
  config_.augment.horizontal_flip = 0.5f;
  const OpenedData opened = test::open_images(config_, 1, true);
  std::map<std::tuple<int, int, bool>, int> seen;
  for (int64_t index = 0; index < 20; ++index) {
    const auto plain = test::read<uint8_t, int32_t>(*opened.train, {.index = index}).input;
    const auto found =
        test::read<uint8_t, int32_t>(*opened.train, {.index = index, .augment = true}).input;
    int matches = 0;
    for (int dy = -4; dy <= 4; ++dy)
      for (int dx = -4; dx <= 4; ++dx)
        for (const bool flip : {false, true}) {
          bool same = true;
          for (int y = 0; same && y < 32; ++y)
            for (int x = 0; same && x < 32; ++x) {
              const int from_y = y + dy, from_x = (flip ? 31 - x : x) + dx;
              const bool inside = from_y >= 0 && from_y < 32 && from_x >= 0 && from_x < 32;
              for (int c = 0; c < 3; ++c)
                same &= found[static_cast<size_t>((y * 32 + x) * 3 + c)] ==
                        (inside ? plain[static_cast<size_t>((from_y * 32 + from_x) * 3 + c)] : 0);
            }
          if (same) {
            ++matches;
            ++seen[{dy, dx, flip}];
          }
        }
    EXPECT_EQ(matches, 1) << index;
  }
  EXPECT_GT(seen.size(), 12u);
}

TEST_F(Images, BadOnesFailByName) {
  write({13});
  const OpenedData opened = test::open_images(config_, 1, true);
  expect_parts(error_of([&] { test::read<uint8_t, int32_t>(*opened.train, {.index = 13}); }),
               {"s-1.tar: image13.jpg", "damaged JPEG", "SKIP"});
  const std::string message = error_of([&] { batches(*opened.train, 0, 4, 3); });
  expect_parts(message, {"image13.jpg"});
}

TEST_F(Images, BadOnesAreReplacedByTheNextGoodOne) {
  std::vector<test::Sample<uint8_t, int32_t>> good;
  {
    const OpenedData opened = test::open_images(config_, 1, true);
    for (int64_t index = 0; index < kImages; ++index)
      good.push_back(test::read<uint8_t, int32_t>(*opened.train, {.index = index}));
  }
  write({13, 14, 39});
  config_.bad_records = BadRecords::kSkip;
  config_.max_bad_fraction = 0.08f;
  const OpenedData opened = test::open_images(config_, 1, true);
  EXPECT_EQ(opened.train->samples(), kImages);
  for (int64_t index = 0; index < kImages; ++index) {
    const auto found =
        test::read<uint8_t, int32_t>(*opened.train, {.index = index, .epoch = 2, .augment = false});
    const int64_t stands = index == 13 || index == 14 ? 15 : index == 39 ? 0 : index;
    const auto& wanted = good[static_cast<size_t>(stands)];
    EXPECT_EQ(found.input, wanted.input) << index;
    EXPECT_EQ(found.target, wanted.target) << index;
  }
  EXPECT_EQ(opened.train->bad_records(), 3);
  const std::string one = batches(*opened.train, 0, 4, 1);
  EXPECT_EQ(opened.train->bad_records(), 3);
  const OpenedData fresh = test::open_images(config_, 1, true);
  EXPECT_EQ(batches(*fresh.train, 0, 4, 4), one);
  config_.bad_records = BadRecords::kReplace;
  EXPECT_EQ(batches(*test::open_images(config_, 1, true).train, 0, 4, 2), one);
  config_.max_bad_fraction = 0.05f;  // of 40: two
  const OpenedData strict = test::open_images(config_, 1, true);
  expect_parts(error_of([&] { batches(*strict.train, 0, 4, 2); }),
               {"3 of 40 images are bad", "max_bad"});
}

TEST_F(Images, OnlyBadOnesFailWhateverThePolicy) {
  std::vector<int> all(kImages);
  for (int i = 0; i < kImages; ++i) all[static_cast<size_t>(i)] = i;
  write(all);
  config_.bad_records = BadRecords::kReplace;
  config_.max_bad_fraction = 1;
  const OpenedData opened = test::open_images(config_, 1, true);
  expect_parts(error_of([&] { test::read<uint8_t, int32_t>(*opened.train, {.index = 5}); }),
               {"none of the 40", "image00.jpg"});
}

}  // namespace
}  // namespace lockstep::data

// Catches draws that leave the image, are not random, depend on anything but (seed, epoch,
// sample), or have other distributions than asked for; and colours that are not torchvision's.

#include "runtime/data/images/augment.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "images.h"

namespace lockstep::data {
namespace {

TEST(Augment, CropsHaveTheAreaAndProportionsAskedFor) {
  AugmentConfig config;
  config.random_resized_crop.emplace();
  config.random_resized_crop->scale = {0.08f, 0.5f};
  double area = 0, log_ratio = 0;
  constexpr int kDraws = 4000;
  const ImageSize size{400, 500};
  std::set<int> tops;
  for (int i = 0; i < kDraws; ++i) {
    const ImageRegion crop = draw_augmentation(config, size, 1, 2, i).crop;
    ASSERT_TRUE(0 <= crop.top && crop.top < crop.bottom && crop.bottom <= size.height);
    ASSERT_TRUE(0 <= crop.left && crop.left < crop.right && crop.right <= size.width);
    const double height = crop.bottom - crop.top, width = crop.right - crop.left;
    ASSERT_TRUE(width / height > 0.74 && width / height < 1.35) << width << " x " << height;
    area += width * height / (size.height * size.width);
    log_ratio += std::log(width / height);
    tops.insert(crop.top);
  }
  // Uniform in [0.08, 0.5], of which every rectangle fits; margins of five standard errors.
  EXPECT_NEAR(area / kDraws, 0.29, 0.01);
  EXPECT_NEAR(log_ratio / kDraws, 0, 0.013);
  EXPECT_GT(tops.size(), 200u);
}

TEST(Augment, CropsOfImagesThatFitNoneAreCentred) {
  AugmentConfig config;
  config.random_resized_crop.emplace();
  config.random_resized_crop->scale = {1, 1};
  const ImageRegion crop = draw_augmentation(config, {10, 100}, 1, 0, 0).crop;
  EXPECT_EQ(crop.bottom - crop.top, 10);
  EXPECT_EQ(crop.right - crop.left, 13);
  EXPECT_EQ(crop.left, 43);
  const ImageRegion one = draw_augmentation(config, {1, 1}, 1, 0, 0).crop;
  EXPECT_EQ(one.bottom - one.top + one.right - one.left, 2);
}

TEST(Augment, IsAPureFunctionOfSeedEpochAndSample) {
  AugmentConfig config;
  config.random_resized_crop.emplace();
  config.pad_and_crop.emplace();
  config.horizontal_flip = 0.5f;
  config.colour_jitter = ColourJitterConfig{0.4f, 0.4f, 0.4f, 0.1f};
  const auto text = [&](uint64_t seed, int64_t epoch, int64_t sample) {
    const Augmentation a = draw_augmentation(config, {300, 300}, seed, epoch, sample);
    return fmt::format("{} {} {} {} {} {} {} {} {} {}",
                       a.crop.top,
                       a.crop.bottom,
                       a.crop.left,
                       a.crop.right,
                       a.shift_y,
                       a.shift_x,
                       a.flip,
                       int{a.order[0]},
                       a.factor[0],
                       a.factor[3]);
  };
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i)
    seen.insert(
        {text(1, 0, i), text(2, 0, i), text(1, i + 1, 0), text(1, 0, int64_t{1} << 36 | i)});
  EXPECT_EQ(seen.size(), 400u);
  EXPECT_EQ(text(1, 5, 7), text(1, 5, 7));
}

TEST(Augment, FlipsAndShiftsAsOftenAsAsked) {
  AugmentConfig config;
  config.horizontal_flip = 0.25f;
  config.pad_and_crop = PadAndCropConfig{2};
  int flips = 0;
  std::vector<int> shifts(5);
  constexpr int kDraws = 10000;
  for (int i = 0; i < kDraws; ++i) {
    const Augmentation drawn = draw_augmentation(config, {32, 32}, 3, 1, i);
    flips += drawn.flip;
    ASSERT_LE(std::abs(drawn.shift_x), 2);
    ++shifts.at(static_cast<size_t>(drawn.shift_y + 2));
  }
  EXPECT_NEAR(flips, kDraws / 4, 5 * 43);  // five standard deviations
  for (int count : shifts) EXPECT_NEAR(count, kDraws / 5, 5 * 40);
  config = {};
  const Augmentation none = draw_augmentation(config, {32, 32}, 3, 1, 0);
  EXPECT_FALSE(none.flip || none.shift_x != 0 || none.shift_y != 0);
}

// The steps in double precision, from torchvision's formulas; hue through the HSV hexagon.
void reference_step(Augmentation::Step step, double factor, std::vector<double>* colours) {
  const auto gray = [](const double* p) { return 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2]; };
  std::vector<double>& all = *colours;
  double mean = 0;
  for (size_t i = 0; i < all.size(); i += 3) mean += gray(&all[i]) / (all.size() / 3.0);
  for (size_t i = 0; i < all.size(); i += 3) {
    double* p = &all[i];
    if (step == Augmentation::kHue) {
      const double most = std::max({p[0], p[1], p[2]}), least = std::min({p[0], p[1], p[2]});
      const double range = most - least, s = most == 0 ? 0 : range / most;
      double h = 0;
      if (range > 0)
        h = p[0] == most   ? std::fmod((p[1] - p[2]) / range + 6, 6)
            : p[1] == most ? 2 + (p[2] - p[0]) / range
                           : 4 + (p[0] - p[1]) / range;
      h = std::fmod(h / 6 + factor + 1, 1) * 6;
      const int sextant = static_cast<int>(h) % 6;
      const double f = h - std::floor(h);
      const double a = most * (1 - s), b = most * (1 - s * f), c = most * (1 - s * (1 - f));
      const double table[6][3] = {
          {most, c, a}, {b, most, a}, {a, most, c}, {a, b, most}, {c, a, most}, {most, a, b}};
      std::copy_n(table[sextant], 3, p);
      continue;
    }
    const double other = step == Augmentation::kBrightness ? 0
                         : step == Augmentation::kContrast ? mean
                                                           : gray(p);
    for (int c = 0; c < 3; ++c) p[c] = std::clamp(factor * p[c] + (1 - factor) * other, 0.0, 1.0);
  }
}

TEST(Augment, ColoursAreThoseOfTheFormulas) {
  const test::Image image = test::make_image(20, 30);
  AugmentConfig config;
  config.colour_jitter = ColourJitterConfig{0.6f, 0.7f, 0.8f, 0.5f};
  std::set<int> first_steps;
  for (int sample = 0; sample < 40; ++sample) {
    const Augmentation drawn = draw_augmentation(config, {20, 30}, 9, 0, sample);
    EXPECT_TRUE(drawn.factor[0] >= 0.4f && drawn.factor[0] <= 1.6f);
    EXPECT_TRUE(std::abs(drawn.factor[3]) <= 0.5f);
    first_steps.insert(drawn.order[0]);
    std::vector<uint8_t> found = image.pixels;
    jitter_colours(drawn, 600, found.data());
    std::vector<double> wanted(found.size());
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = image.pixels[i] / 255.0;
    for (const Augmentation::Step step : drawn.order)
      reference_step(step, drawn.factor[step], &wanted);
    // Float arithmetic is off by a few 1e-7, times the hexagon's slopes.
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_TRUE(std::abs(found[i] - wanted[i] * 255) <= 0.51)
          << sample << ": " << int{found[i]} << " for " << wanted[i] * 255;
  }
  EXPECT_EQ(first_steps.size(), 4u);
}

TEST(Augment, NoJitterLeavesColoursAlone) {
  const test::Image image = test::make_image(16, 16);
  std::vector<uint8_t> found = image.pixels;
  jitter_colours(Augmentation{}, 256, found.data());
  EXPECT_EQ(found, image.pixels);
}

}  // namespace
}  // namespace lockstep::data

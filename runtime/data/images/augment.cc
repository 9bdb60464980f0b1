#include "runtime/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/rng.h"

namespace lockstep::data {
namespace {

// Each sample has this many blocks of four random words. Blocks 0 to 9 are for attempts to crop.
constexpr uint64_t kBlocksPerSample = 16;
constexpr int kCropAttempts = 10;
constexpr uint64_t kShiftBlock = 10, kJitterBlock = 11, kOrderBlock = 12;

class Draws {
 public:
  Draws(uint64_t seed, int64_t epoch, int64_t sample)
      : stream_{.seed = seed,
                .step = static_cast<uint32_t>(epoch),
                .lane = 0,
                .purpose = kRngAugment},
        first_(static_cast<uint64_t>(sample) * kBlocksPerSample) {}
  Philox4 block(uint64_t number) const { return philox(stream_, first_ + number); }

 private:
  RngStream stream_;
  uint64_t first_;
};

// Uniform in [0, 1), in [low, high), and in {0, .., count - 1}.
double uniform(uint32_t word) { return word * 0x1p-32; }
double uniform(uint32_t word, double low, double high) {
  return low + (high - low) * uniform(word);
}
int below(uint32_t word, int count) {
  return static_cast<int>(bounded_from_word(word, static_cast<uint32_t>(count)));
}

// The largest centred rectangle with an allowed aspect ratio.
ImageRegion centre_of(ImageSize size, double min_ratio, double max_ratio) {
  const double ratio = static_cast<double>(size.width) / size.height;
  int width = size.width, height = size.height;
  if (ratio < min_ratio) height = static_cast<int>(std::lround(width / min_ratio));
  if (ratio > max_ratio) width = static_cast<int>(std::lround(height * max_ratio));
  width = std::clamp(width, 1, size.width);
  height = std::clamp(height, 1, size.height);
  const int top = (size.height - height) / 2, left = (size.width - width) / 2;
  return {top, top + height, left, left + width};
}

// torchvision's RandomResizedCrop: draws an area uniformly and an aspect ratio log-uniformly, in up
// to ten attempts to fit them into the image.
ImageRegion draw_crop(const RandomResizedCropConfig& config, ImageSize size, const Draws& draws) {
  const double area = static_cast<double>(size.height) * size.width;
  const double log_min = std::log(static_cast<double>(config.ratio[0]));
  const double log_max = std::log(static_cast<double>(config.ratio[1]));
  for (int attempt = 0; attempt < kCropAttempts; ++attempt) {
    const Philox4 words = draws.block(static_cast<uint64_t>(attempt));
    const double target = area * uniform(words.word[0], config.scale[0], config.scale[1]);
    const double ratio = std::exp(uniform(words.word[1], log_min, log_max));
    const double exact_width = std::round(std::sqrt(target * ratio));
    const double exact_height = std::round(std::sqrt(target / ratio));
    if (exact_width < 1 || exact_width > size.width || exact_height < 1 ||
        exact_height > size.height)
      continue;
    const int width = static_cast<int>(exact_width), height = static_cast<int>(exact_height);
    const int top = below(words.word[2], size.height - height + 1);
    const int left = below(words.word[3], size.width - width + 1);
    return {top, top + height, left, left + width};
  }
  return centre_of(size, config.ratio[0], config.ratio[1]);
}

void draw_jitter(const ColourJitterConfig& config, const Draws& draws, Augmentation* result) {
  const Philox4 words = draws.block(kJitterBlock), order = draws.block(kOrderBlock);
  const std::array<float, 3> strength{config.brightness, config.contrast, config.saturation};
  for (size_t i = 0; i < strength.size(); ++i)
    result->factor[i] = static_cast<float>(
        uniform(words.word[i], std::max(0.0f, 1 - strength[i]), 1 + strength[i]));
  result->factor[Augmentation::kHue] =
      static_cast<float>(uniform(words.word[3], -config.hue, config.hue));
  for (int i = 3; i > 0; --i)
    std::swap(result->order[static_cast<size_t>(i)],
              result->order[static_cast<size_t>(below(order.word[i], i + 1))]);
}

float clamp01(float value) { return std::clamp(value, 0.0f, 1.0f); }

// ITU-R 601 luma with the weights of PIL and torchvision.
float gray_of(const float* rgb) { return 0.2989f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]; }

// Interpolates (factor < 1) or extrapolates (factor > 1) between `other` and the colour.
void blend(float* rgb, float other, float factor) {
  for (int c = 0; c < 3; ++c) rgb[c] = clamp01(factor * rgb[c] + (1 - factor) * other);
}

// Rotates the hue in HSV. The largest and the smallest value stay. The hue determines which
// channels have them, and the third channel's value.
void rotate_hue(float* rgb, float turns) {
  const float max = std::max({rgb[0], rgb[1], rgb[2]});
  const float min = std::min({rgb[0], rgb[1], rgb[2]});
  const float range = max - min;
  if (range == 0) return;
  float hue = rgb[0] == max   ? (rgb[1] - rgb[2]) / range
              : rgb[1] == max ? 2 + (rgb[2] - rgb[0]) / range
                              : 4 + (rgb[0] - rgb[1]) / range;
  hue = hue / 6 + turns;
  hue -= std::floor(hue);
  const float sextants = hue * 6;
  const float offsets[3] = {5, 3, 1};  // red, green, blue
  for (int c = 0; c < 3; ++c) {
    float k = offsets[c] + sextants;
    if (k >= 6) k -= 6;
    rgb[c] = max - range * clamp01(std::min(k, 4 - k));
  }
}

}  // namespace

Augmentation draw_augmentation(
    const AugmentConfig& config, ImageSize size, uint64_t seed, int64_t epoch, int64_t sample) {
  const Draws draws(seed, epoch, sample);
  Augmentation result;
  result.crop = {0, size.height, 0, size.width};
  if (config.random_resized_crop) result.crop = draw_crop(*config.random_resized_crop, size, draws);
  const Philox4 words = draws.block(kShiftBlock);
  if (config.pad_and_crop) {
    const int padding = static_cast<int>(config.pad_and_crop->padding);
    result.shift_y = below(words.word[0], 2 * padding + 1) - padding;
    result.shift_x = below(words.word[1], 2 * padding + 1) - padding;
  }
  result.flip = uniform(words.word[2]) < static_cast<double>(config.horizontal_flip);
  if (config.colour_jitter) draw_jitter(*config.colour_jitter, draws, &result);
  return result;
}

// Contrast needs the mean gray of the whole image after the steps before it. A first pass over the
// pixels computes that mean, and a second pass applies all steps to each pixel in float.
void jitter_colours(const Augmentation& augmentation, int64_t pixels, uint8_t* rgb) {
  const auto apply = [&](size_t from, size_t to, float mean, float* colour) {
    for (size_t i = from; i < to; ++i) {
      const Augmentation::Step step = augmentation.order[i];
      const float factor = augmentation.factor[step];
      switch (step) {
        case Augmentation::kBrightness: blend(colour, 0, factor); break;
        case Augmentation::kContrast: blend(colour, mean, factor); break;
        case Augmentation::kSaturation: blend(colour, gray_of(colour), factor); break;
        case Augmentation::kHue: rotate_hue(colour, factor); break;
      }
    }
  };
  const auto load = [rgb](int64_t pixel, float* colour) {
    for (int c = 0; c < 3; ++c) colour[c] = static_cast<float>(rgb[3 * pixel + c]) / 255.0f;
  };
  // Computing the steps before contrast twice is cheaper than storing their results as floats.
  const auto contrast = static_cast<size_t>(
      std::ranges::find(augmentation.order, Augmentation::kContrast) - augmentation.order.begin());
  float mean = 0;
  if (augmentation.factor[Augmentation::kContrast] != 1) {
    double sum = 0;
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      float colour[3];
      load(pixel, colour);
      apply(0, contrast, 0, colour);
      sum += gray_of(colour);
    }
    mean = static_cast<float>(sum / static_cast<double>(pixels));
  }
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    float colour[3];
    load(pixel, colour);
    apply(0, augmentation.order.size(), mean, colour);
    for (int c = 0; c < 3; ++c)
      rgb[3 * pixel + c] = static_cast<uint8_t>(std::lround(colour[c] * 255.0f));
  }
}

}  // namespace lockstep::data

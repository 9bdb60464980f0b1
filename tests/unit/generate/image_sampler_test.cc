// Catches: images that depend on how many are made together, on the images beside them or on which
// row of the network's batch they have; a guidance that is not between and beyond the two answers;
// times that leave out the first; classes that the network is not told; images in BF16 that are
// those of FP32, or others altogether.
#include "runtime/generate/image_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/rng.h"
#include "runtime/cpu/backend.h"
#include "runtime/generate/image_denoiser.h"
#include "tests/reference/opened_models.h"

namespace lockstep::generate {
namespace {

constexpr int64_t kElements = 8 * 4 * 3;

// Weights depend on their place alone.
void fill_parameters(const std::vector<checkpoint::NamedSlice>& slices, float* flat) {
  for (size_t k = 0; k < slices.size(); ++k) {
    for (int64_t i = 0; i < slices[k].shape.elements(); ++i) {
      const uint32_t word = philox_word({k, 0, 0, 1}, static_cast<uint64_t>(i));
      flat[slices[k].offset + i] = uniform_from_word(word) - 0.5f;
    }
  }
}

DitConfig network(DiffusionSchedule schedule, DiffusionTarget target) {
  DitConfig config;
  config.layers = 1;
  config.heads = 2;
  config.width = 16;
  config.patch = 2;
  config.classes = 3;
  config.schedule = schedule;
  config.target = target;
  return config;
}

using Images = std::vector<float>;

Images sample(const DitConfig& config,
              int64_t rows,
              const std::vector<int32_t>& classes,
              const ImageSampling& options,
              DType compute = DType::kF32) {
  models::ModelIo io = {.classes = 3};
  io.height = 8;
  io.width = 4;
  io.channels = 3;
  ImageDenoiser denoiser(
      cpu::make_backend(), *models::open_model(config), io, compute, rows, fill_parameters);
  int64_t done = 0;
  Images images = sample_images(
      denoiser, testing::traits_of(config), classes, options, [&](int64_t step, int64_t all) {
        EXPECT_EQ(step, ++done);
        EXPECT_LE(step, all);
      });
  const int64_t room = rows / options.rows_per_image();
  const auto count = static_cast<int64_t>(classes.size());
  EXPECT_EQ(done, (count + room - 1) / room * options.steps);
  return images;
}

Images image(const Images& images, int64_t number) {
  return {images.begin() + number * kElements, images.begin() + (number + 1) * kElements};
}

TEST(ImageSampler, AnImageIsWhatItIsAlone) {
  for (const auto& [schedule, target] :
       {std::pair(DiffusionSchedule::kLinear, DiffusionTarget::kEpsilon),
        std::pair(DiffusionSchedule::kCosine, DiffusionTarget::kSample),
        std::pair(DiffusionSchedule::kCosine, DiffusionTarget::kVelocity),
        std::pair(DiffusionSchedule::kFlowMatching, DiffusionTarget::kVelocity)}) {
    const DitConfig config = network(schedule, target);
    for (const double guidance : {0.0, 1.0, 2.5}) {
      const ImageSampling options{.steps = 4, .guidance = guidance, .seed = 5};
      const Images all = sample(config, 32, {0, 1, 2, 0, 1}, options);
      ASSERT_EQ(static_cast<int64_t>(all.size()), 5 * kElements);
      EXPECT_EQ(sample(config, 2, {0, 1, 2, 0, 1}, options), all);
      EXPECT_EQ(image(sample(config, 6, {2, 1, 1}, options), 1), image(all, 1));
      // Classes count, but where the guidance is that none does; noise always.
      EXPECT_EQ(image(sample(config, 6, {2, 2}, options), 1) == image(all, 1), guidance == 0);
      EXPECT_NE(image(all, 0), image(all, 3));
      EXPECT_TRUE(std::ranges::all_of(all, [](float x) { return std::abs(x) < 1e4f; }));
    }
  }
}

TEST(ImageSampler, Bf16IsNearFp32) {
  const DitConfig config = network(DiffusionSchedule::kFlowMatching, DiffusionTarget::kVelocity);
  const ImageSampling options{.steps = 4, .guidance = 2, .seed = 5};
  const Images floats = sample(config, 8, {0, 1, 2}, options),
               halves = sample(config, 8, {0, 1, 2}, options, DType::kBF16);
  EXPECT_EQ(sample(config, 2, {0, 1, 2}, options, DType::kBF16), halves);
  double error = 0, squares = 0;
  for (size_t i = 0; i < floats.size(); ++i) {
    error += std::pow(static_cast<double>(floats[i]) - static_cast<double>(halves[i]), 2);
    squares += std::pow(static_cast<double>(floats[i]), 2);
  }
  EXPECT_GT(error, 0);
  // Roundings to 8 bits, which each step adds and the guidance enlarges: 0.02 was measured.
  EXPECT_LT(std::sqrt(error / squares), 0.06);
}

// A step of Euler's method is linear in the answers, and so in the guidance.
TEST(ImageSampler, GuidanceIsLinear) {
  const DitConfig config = network(DiffusionSchedule::kFlowMatching, DiffusionTarget::kVelocity);
  const auto with = [&](double guidance) {
    return sample(config, 8, {1, 2}, {.steps = 1, .guidance = guidance, .seed = 3});
  };
  const Images none = with(0), own = with(1), beyond = with(3);
  for (size_t i = 0; i < none.size(); ++i)
    EXPECT_NEAR(beyond[i], none[i] + 3 * (own[i] - none[i]), 1e-4f * (1 + std::abs(beyond[i])));
  EXPECT_NE(none, own);
}

// Where the network finds an image, the last step leaves just that: within [-1, 1].
TEST(ImageSampler, SchedulesOfNoiseEndInAnImage) {
  const DitConfig config = network(DiffusionSchedule::kLinear, DiffusionTarget::kEpsilon);
  for (const int64_t steps : {1, 3, 10}) {
    for (const float x : sample(config, 4, {0, 1}, {.steps = steps, .guidance = 2})) {
      EXPECT_LE(x, 1);
      EXPECT_GE(x, -1);
    }
  }
}

TEST(ImageSampler, TimesBeginWithTheLastAndAreEvenlyApart) {
  EXPECT_EQ(sampling_times(1), std::vector<int64_t>{999});
  EXPECT_EQ(sampling_times(4), (std::vector<int64_t>{999, 749, 499, 249}));
  EXPECT_EQ(sampling_times(3), (std::vector<int64_t>{999, 666, 332}));
  const std::vector<int64_t> all = sampling_times(1000);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], 999 - i);
}

}  // namespace
}  // namespace lockstep::generate

// Catches: samples of a batch that are not those which the loader reads, in another epoch, order or
// lane, and a largest number of another sample.
#include "runtime/data/batch_samples.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "test_loader.h"

namespace lockstep::data {
namespace {

// Input (2) f32 = index, -epoch; target (1) f32 = 1000 times the index, or infinity for sample 3.
class Numbered : public Dataset {
 public:
  Numbered() : Dataset({DType::kF32, Shape{2}}, {DType::kF32, Shape{1}}) {}
  int64_t samples() const override { return 11; }
  int64_t resident_bytes() const override { return 0; }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const float values[2] = {static_cast<float>(key.index), -static_cast<float>(key.epoch)};
    const float value =
        key.index == 3 ? std::numeric_limits<float>::infinity() : 1000.0f * values[0];
    std::memcpy(input, values, sizeof(values));
    std::memcpy(target, &value, sizeof(value));
  }
};

TEST(BatchSamples, AreThoseThatTheLoaderReads) {
  const Numbered dataset;
  for (const bool shuffle : {false, true}) {
    LoaderOptions options;
    options.geometry = {.lane_batch = 3, .lanes = 2, .first_lane = 0, .local_lanes = 2};
    options.seed = 5;
    options.shuffle = shuffle;
    options.steps = 6;  // of 6 samples: three epochs and a part
    test::TestLoader loader(dataset, options);
    for (int64_t step = 0; step < options.steps; ++step) {
      const LaneBatch* lanes = loader.loader.next();
      for (int lane = 0; lane < 2; ++lane) {
        const std::vector<SampleKey> keys =
            training_samples(dataset, {5, shuffle, 6}, step, lane * 3, 3);
        ASSERT_EQ(keys.size(), 3u);
        const auto* inputs = reinterpret_cast<const float*>(lanes[lane].input);
        for (size_t row = 0; row < 3; ++row) {
          EXPECT_EQ(static_cast<float>(keys[row].index), inputs[2 * row]) << step;
          EXPECT_EQ(-static_cast<float>(keys[row].epoch), inputs[2 * row + 1]) << step;
        }
      }
    }
  }
}

TEST(BatchSamples, LargestNumbersAreFiniteOnes) {
  const Numbered dataset;
  const std::vector<SampleKey> keys = {{3, 7, true}, {10, 0, true}, {9, 50, true}};
  const LargestNumbers largest = largest_numbers(dataset, keys);
  EXPECT_EQ(largest.input->magnitude, 50);
  EXPECT_EQ(largest.input->sample, 9);
  EXPECT_EQ(largest.target->magnitude, 10'000);
  EXPECT_EQ(largest.target->sample, 10);
  EXPECT_EQ(words_for(largest, dataset), "targets reach 1e+04 in sample 10");
  EXPECT_EQ(what_is_large(largest), "targets");
  EXPECT_EQ(words_for(largest_numbers(dataset, std::vector<SampleKey>{{9, 0, true}}), dataset), "");
}

}  // namespace
}  // namespace lockstep::data

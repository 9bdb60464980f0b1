// Catches samples lost, repeated or out of order between ranks, steps and restarts, padding that is
// not zero, errors that vanish, and (under TSan) races between the thread and its user.

#include "runtime/data/loader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"
#include "test_loader.h"

namespace lockstep::data {
namespace {

using test::AlignedMemory;
using test::TestLoader;

// What sample it was: input (3) i32 = index, epoch, augment; target () i32 = index + 1 (never 0).
class KeyDataset : public Dataset {
 public:
  explicit KeyDataset(int64_t samples, int64_t fail_at = -1, int delay_us = 0)
      : Dataset({DType::kI32, Shape{3}}, {DType::kI32, Shape{}}),
        samples_(samples),
        fail_at_(fail_at),
        delay_us_(delay_us) {}
  int64_t samples() const override { return samples_; }
  int64_t resident_bytes() const override { return 0; }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    if (key.index == fail_at_) throw DataError("sample {} is broken", key.index);
    if (delay_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us_));
    const int32_t values[4] = {static_cast<int32_t>(key.index),
                               static_cast<int32_t>(key.epoch),
                               key.augment,
                               static_cast<int32_t>(key.index + 1)};
    std::memcpy(input, values, 12);
    std::memcpy(target, values + 3, 4);
  }

 private:
  int64_t samples_, fail_at_;
  int delay_us_;
};

using Key = std::tuple<int32_t, int32_t>;  // index, epoch; (-1, -1) for padding

// The keys of one step in lane order; checks padding and targets.
std::vector<Key> keys_of(const LaneBatch* lanes, const BatchGeometry& geometry, bool training) {
  std::vector<Key> keys;
  for (int lane = 0; lane < geometry.local_lanes; ++lane) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(lanes[lane].input) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(lanes[lane].target) % 64, 0u);
    for (int64_t row = 0; row < geometry.lane_batch; ++row) {
      int32_t input[3], target;
      std::memcpy(input, lanes[lane].input + row * 12, 12);
      std::memcpy(&target, lanes[lane].target + row * 4, 4);
      if (row < lanes[lane].valid_samples) {
        EXPECT_EQ(target, input[0] + 1);
        EXPECT_EQ(input[2], training);
        keys.emplace_back(input[0], input[1]);
      } else {
        EXPECT_EQ(input[0] | input[1] | input[2] | target, 0);
        keys.emplace_back(-1, -1);
      }
    }
  }
  return keys;
}

std::vector<Key> take(Loader& loader, const LoaderOptions& options, int64_t steps) {
  std::vector<Key> keys;
  for (int64_t step = 0; step < steps; ++step) {
    const LaneBatch* lanes = loader.next();
    if (lanes == nullptr) {
      ADD_FAILURE() << "ended at step " << step;
      return keys;
    }
    const auto more = keys_of(lanes, options.geometry, options.training);
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

int threads_of_test = 1;

// Everything holds for any number of threads.
class Loaders : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { threads_of_test = GetParam(); }
  void TearDown() override { threads_of_test = 1; }
};
INSTANTIATE_TEST_SUITE_P(Threads, Loaders, ::testing::Values(1, 2, 5));

LoaderOptions training_options(
    int64_t lane_batch, int lanes, int first_lane, int local_lanes, int64_t ring = 3) {
  LoaderOptions options;
  options.geometry = {lane_batch, lanes, first_lane, local_lanes};
  options.seed = 42;
  options.shuffle = true;
  options.ring_batches = ring;
  options.threads = threads_of_test;
  return options;
}

// What the documentation of Loader promises, from the sampler alone.
std::vector<Key> expected_training(int64_t samples,
                                   int64_t global_batch,
                                   int64_t first_step,
                                   int64_t steps) {
  std::vector<Key> keys;
  for (int64_t p = first_step * global_batch; p < (first_step + steps) * global_batch; ++p) {
    const Sampler sampler(samples, 42, p / samples, true);
    keys.emplace_back(sampler[p % samples], p / samples);
  }
  return keys;
}

class Ranks : public ::testing::TestWithParam<std::tuple<int, int64_t>> {};

// The same lanes, of which every rank has every `ranks`-th.
TEST_P(Ranks, ReadEveryNthLane) {
  const auto [ranks, samples] = GetParam();
  constexpr int kLanes = 8;
  constexpr int64_t kLaneBatch = 3, kSteps = 50;
  const KeyDataset dataset(samples);
  const std::vector<Key> all = expected_training(samples, kLanes * kLaneBatch, 0, kSteps);
  for (int rank = 0; rank < ranks; ++rank) {
    LoaderOptions options = training_options(kLaneBatch, kLanes, rank, kLanes / ranks);
    options.geometry.lane_stride = ranks;
    TestLoader test(dataset, options);
    std::vector<Key> expected;
    for (int64_t step = 0; step < kSteps; ++step) {
      for (int lane = rank; lane < kLanes; lane += ranks) {
        const auto first = all.begin() + (step * kLanes + lane) * kLaneBatch;
        expected.insert(expected.end(), first, first + kLaneBatch);
      }
    }
    EXPECT_EQ(take(test.loader, options, kSteps), expected) << rank;
  }
}

TEST_P(Ranks, TogetherReadTheSamplersOrder) {
  const auto [ranks, samples] = GetParam();
  constexpr int kLanes = 8;
  constexpr int64_t kLaneBatch = 3, kSteps = 50;  // 1200 samples: several epochs, straddled
  const KeyDataset dataset(samples);
  std::vector<std::vector<Key>> of_rank;
  const int local = kLanes / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const LoaderOptions options = training_options(kLaneBatch, kLanes, rank * local, local);
    TestLoader test(dataset, options);
    of_rank.push_back(take(test.loader, options, kSteps));
  }
  std::vector<Key> all;
  const int64_t rows = local * kLaneBatch;
  for (int64_t step = 0; step < kSteps; ++step)
    for (const auto& keys : of_rank)
      all.insert(all.end(), keys.begin() + step * rows, keys.begin() + (step + 1) * rows);
  EXPECT_EQ(all, expected_training(samples, kLanes * kLaneBatch, 0, kSteps));
}

INSTANTIATE_TEST_SUITE_P(All,
                         Ranks,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(1, 2, 24, 100, 257, 5000)));

TEST_P(Loaders, ResumesAtAnyStep) {
  const KeyDataset dataset(100);
  for (int64_t first : {1, 2, 7, 13, 100}) {
    LoaderOptions options = training_options(4, 4, 2, 2);
    TestLoader whole(dataset, options);
    take(whole.loader, options, first);
    options.first_step = first;
    TestLoader resumed(dataset, options);
    EXPECT_EQ(take(resumed.loader, options, 20), take(whole.loader, options, 20)) << first;
  }
}

TEST_P(Loaders, EndsAfterTheGivenSteps) {
  const KeyDataset dataset(100);
  LoaderOptions options = training_options(4, 1, 0, 1);
  options.first_step = 5;
  options.steps = 9;
  TestLoader test(dataset, options);
  EXPECT_EQ(take(test.loader, options, 9), expected_training(100, 4, 5, 9));
  EXPECT_EQ(test.loader.next(), nullptr);
  EXPECT_EQ(test.loader.next(), nullptr);
}

TEST_P(Loaders, EvaluatesInOrderAndPadsTheEnd) {
  for (int64_t samples : {1, 5, 6, 7, 23, 24, 25, 47}) {
    const KeyDataset dataset(samples);
    std::vector<std::vector<Key>> of_rank;
    int64_t steps = 0;
    for (int rank = 0; rank < 2; ++rank) {
      LoaderOptions options = training_options(6, 4, rank * 2, 2);
      options.training = false;  // shuffle is left on: evaluation must not care
      TestLoader test(dataset, options);
      steps = evaluation_steps(samples, options.geometry);
      EXPECT_EQ(steps, (samples + 23) / 24);
      of_rank.push_back(take(test.loader, options, steps));
      EXPECT_EQ(test.loader.next(), nullptr);
    }
    for (int64_t p = 0; p < steps * 24; ++p) {
      const int64_t within = p % 24;
      const Key key = of_rank[within / 12][p / 24 * 12 + within % 12];
      EXPECT_EQ(key, p < samples ? Key(p, 0) : Key(-1, -1))
          << samples << " samples, position " << p;
    }
  }
}

TEST_P(Loaders, EvaluatesEveryNthLane) {
  for (int64_t samples : {1, 5, 6, 7, 23, 24, 25, 47}) {
    const KeyDataset dataset(samples);
    for (int rank = 0; rank < 2; ++rank) {
      LoaderOptions options = training_options(6, 4, rank, 2);
      options.geometry.lane_stride = 2;
      options.training = false;
      TestLoader test(dataset, options);
      std::vector<Key> expected;
      const int64_t steps = evaluation_steps(samples, options.geometry);
      for (int64_t lane = rank; lane < steps * 4; lane += 2) {
        for (int64_t p = lane * 6; p < (lane + 1) * 6; ++p)
          expected.push_back(p < samples ? Key(p, 0) : Key(-1, -1));
      }
      EXPECT_EQ(take(test.loader, options, steps), expected) << samples << " samples";
      EXPECT_EQ(test.loader.next(), nullptr);
    }
  }
}

TEST_P(Loaders, EvaluatesOnlyTheFirstSamples) {
  const KeyDataset dataset(100);
  LoaderOptions options = training_options(4, 2, 0, 2);
  options.training = false;
  options.samples = 11;
  TestLoader test(dataset, options);
  const auto keys = take(test.loader, options, 2);
  EXPECT_EQ(keys[10], Key(10, 0));
  EXPECT_EQ(keys[11], Key(-1, -1));
  EXPECT_EQ(test.loader.next(), nullptr);
}

TEST_P(Loaders, RestartsAnywhereAtAnyTime) {
  const KeyDataset dataset(50);
  LoaderOptions options = training_options(4, 2, 0, 2, 4);
  TestLoader training(dataset, options);
  for (int64_t taken : {0, 1, 3, 9}) {
    take(training.loader, options, taken);
    training.loader.restart(taken * 2);
    EXPECT_EQ(take(training.loader, options, 12), expected_training(50, 8, taken * 2, 12));
  }
  options.training = false;
  TestLoader evaluation(dataset, options);
  const auto first = take(evaluation.loader, options, 7);
  EXPECT_EQ(evaluation.loader.next(), nullptr);
  evaluation.loader.restart(0);
  EXPECT_EQ(take(evaluation.loader, options, 7), first);
  EXPECT_EQ(evaluation.loader.next(), nullptr);
  evaluation.loader.restart(6);
  take(evaluation.loader, options, 1);
  EXPECT_EQ(evaluation.loader.next(), nullptr);
}

TEST_P(Loaders, RethrowsWhatTheDatasetThrewInItsPlace) {
  const KeyDataset dataset(100, /*fail_at=*/37);
  LoaderOptions options = training_options(5, 2, 0, 2, 2);
  options.shuffle = false;
  TestLoader test(dataset, options);
  take(test.loader, options, 3);  // samples 0..29 are fine
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      test.loader.next();
      FAIL() << "no error";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "sample 37 is broken");
    }
  }
  test.loader.restart(4);  // samples 40.. are fine
  EXPECT_EQ(take(test.loader, options, 1)[0], Key(40, 0));
}

TEST_P(Loaders, ShutsDownAtAnyTime) {
  const KeyDataset fast(1000), slow(1000, -1, 50), broken(1000, 3);
  for (int taken : {0, 1, 2, 5}) {
    for (int64_t ring : {1, 2, 5}) {
      for (const Dataset* dataset :
           {static_cast<const Dataset*>(&fast), static_cast<const Dataset*>(&slow)}) {
        const LoaderOptions options = training_options(2, 2, 0, 2, ring);
        TestLoader test(*dataset, options);
        take(test.loader, options, taken);
      }
    }
  }
  TestLoader failed(broken, training_options(100, 1, 0, 1));  // nobody ever sees the error
}

// A consumer that is sometimes slower and sometimes faster than the thread, over every ring length:
// finds a lost wake-up as a hang, an overwritten batch as a wrong key.
TEST_P(Loaders, KeepsOrderUnderChangingSpeed) {
  const KeyDataset dataset(300);
  for (int64_t ring : {1, 2, 3, 4, 7, 64}) {
    const LoaderOptions options = training_options(2, 2, 0, 2, ring);
    TestLoader test(dataset, options);
    const auto expected = expected_training(300, 4, 0, 3000);
    for (int64_t step = 0; step < 3000; ++step) {
      const LaneBatch* lanes = test.loader.next();
      if (step % 97 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (step % 13 == 0) std::this_thread::yield();
      const auto keys = keys_of(lanes, options.geometry, true);
      ASSERT_TRUE(std::equal(keys.begin(), keys.end(), expected.begin() + step * 4))
          << "step " << step;
    }
  }
}

TEST_P(Loaders, DoesNotTouchMemoryBeyondItsOwn) {
  const KeyDataset dataset(10);
  const LoaderOptions options = training_options(3, 1, 0, 1, 2);
  const size_t bytes = loader_bytes(dataset, options.geometry, 2);
  EXPECT_EQ(bytes, 2u * (64 + 64));
  AlignedMemory memory(bytes + 64);
  {
    Loader loader(dataset, options, {memory.data, bytes});
    take(loader, options, 20);
  }
  for (size_t i = bytes; i < memory.size; ++i) ASSERT_EQ(memory.data[i], std::byte{0xAB});
}

// Rows of one batch finish in any order, and so do batches: slow samples hold back their own batch
// and no bit changes.
TEST_P(Loaders, KeepsOrderWhenSamplesTakeTheirTime) {
  class Uneven final : public WrappedDataset {
   public:
    Uneven() : WrappedDataset(std::make_unique<KeyDataset>(100)) {}
    bool is_expensive() const override { return true; }
    void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
      std::this_thread::sleep_for(std::chrono::microseconds(key.index * 7919 % 5 * 100));
      dataset_->read(key, input, target);
    }
  };
  const Uneven dataset;
  for (int64_t ring : {1, 2, 4}) {
    const LoaderOptions options = training_options(3, 2, 0, 2, ring);
    TestLoader test(dataset, options);
    EXPECT_EQ(take(test.loader, options, 40), expected_training(100, 6, 0, 40));
  }
}

TEST_P(Loaders, ChooseTheirThreads) {
  const KeyDataset cheap(10);
  EXPECT_EQ(choose_loader_threads(cheap, 0, 8), 1);
  EXPECT_EQ(choose_loader_threads(cheap, 3, 8), 3);
  const struct Costly final : KeyDataset {
    using KeyDataset::KeyDataset;
    bool is_expensive() const override { return true; }
  } is_expensive(10);
  EXPECT_EQ(choose_loader_threads(is_expensive, 0, 8), 8);
  EXPECT_EQ(choose_loader_threads(is_expensive, 3, 8), 3);
}

TEST_P(Loaders, ChoosesTheRingBySize) {
  EXPECT_EQ(default_ring_batches(0), 64);
  EXPECT_EQ(default_ring_batches(8 << 10), 64);
  EXPECT_EQ(default_ring_batches(128 << 10), 32);
  EXPECT_EQ(default_ring_batches(64 << 20), 2);
}

}  // namespace
}  // namespace lockstep::data

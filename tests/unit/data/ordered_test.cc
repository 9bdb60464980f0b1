// Catches: classes that are drawn unequally, batches whose samples are not of similar lengths,
// samples that grouping loses or takes twice, an order that depends on what was asked before or on
// the ranks.
#include "runtime/data/ordered.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "test_loader.h"
#include "texts.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

// Sample i has the class 2 where i % 10 is 0, 0 where it is 1, 4 elsewhere, and the length 1 + i %
// 37.
class Samples : public Dataset {
 public:
  explicit Samples(int64_t count, bool padded = true)
      : Dataset({DType::kI32, Shape{1}}, {DType::kI32, Shape{}}), count_(count), padded_(padded) {}
  int64_t samples() const override { return count_; }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto index = static_cast<int32_t>(key.index);
    const int32_t label = class_of(key.index);
    std::memcpy(input, &index, sizeof(index));
    std::memcpy(target, &label, sizeof(label));
  }
  int64_t length(int64_t index) const override { return padded_ ? 1 + index % 37 : 0; }
  int64_t resident_bytes() const override { return 1000; }
  static int32_t class_of(int64_t index) { return index % 10 == 0 ? 2 : index % 10 == 1 ? 0 : 4; }

 private:
  int64_t count_;
  bool padded_;
};

std::unique_ptr<Dataset> ordered(int64_t count, bool balance, bool group, bool padded = true) {
  DataConfig config;
  config.balance_classes = balance;
  config.group_by_length = group;
  OpenedData opened;
  opened.train = std::make_unique<Samples>(count, padded);
  order_training(config, &opened);
  return std::move(opened.train);
}

TEST(BalanceClasses, DrawsEachClassEquallyOften) {
  const auto dataset = ordered(1000, true, false);
  EpochOrder order(dataset->order(), 3, true, 16);
  std::map<int32_t, int64_t> times;
  std::map<int64_t, int64_t> of_rare;
  constexpr int64_t kEpochs = 30;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch)
    for (int64_t p = 0; p < 1000; ++p) {
      const int64_t index = order.at(epoch, p);
      ++times[Samples::class_of(index)];
      if (index % 10 == 0) ++of_rare[index];
    }
  ASSERT_EQ(times.size(), 3u);
  // Five standard deviations of 30000 draws with probability 1/3.
  const double tolerance = 5 * std::sqrt(kEpochs * 1000 * (1.0 / 3) * (2.0 / 3));
  for (const auto& [label, count] : times)
    EXPECT_NEAR(count, kEpochs * 1000 / 3, tolerance) << label;
  EXPECT_EQ(of_rare.size(), 100u);  // each of its samples, some hundred times
  for (const auto& [index, count] : of_rare) EXPECT_NEAR(count, 100, 60) << index;
  EXPECT_GT(dataset->resident_bytes(), 9000);
}

TEST(BalanceClasses, IsAPureFunction) {
  const auto dataset = ordered(500, true, false);
  EpochOrder forwards(dataset->order(), 3, true), backwards(dataset->order(), 3, true);
  std::vector<int64_t> indices;
  for (int64_t p = 0; p < 500; ++p) indices.push_back(forwards.at(2, p));
  for (int64_t p = 499; p >= 0; --p) EXPECT_EQ(backwards.at(2, p), indices[static_cast<size_t>(p)]);
  EXPECT_NE(forwards.at(3, 0) * 1000 + forwards.at(3, 1), indices[0] * 1000 + indices[1]);
}

// How far lengths of a batch of the run are apart.
int64_t spread(EpochOrder& order, const Dataset& dataset, int64_t batch_number, int64_t batch) {
  int64_t least = 1000, most = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t at = batch_number * batch + i;
    const int64_t length = dataset.length(order.at(at / dataset.samples(), at % dataset.samples()));
    least = std::min(least, length);
    most = std::max(most, length);
  }
  return most - least;
}

TEST(GroupByLength, BatchesHaveSimilarLengthsAndEpochsAllSamples) {
  constexpr int64_t kBatch = 8;
  for (const int64_t count : {1003, 512, 20, 5}) {
    const auto dataset = ordered(count, false, true);
    EpochOrder order(dataset->order(), 7, true, kBatch);
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<int64_t> indices;
      for (int64_t p = 0; p < count; ++p) indices.push_back(order.at(epoch, p));
      std::ranges::sort(indices);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(indices[static_cast<size_t>(i)], i) << count;
    }
    if (count < 500) continue;
    // 64 batches of 8 samples hold some 14 of each of the 37 lengths. One batch of an epoch
    // straddles its end.
    int64_t wide = 0;
    const int64_t batches = 5 * count / kBatch;
    for (int64_t b = 0; b < batches; ++b) wide += spread(order, *dataset, b, kBatch) > 4 ? 1 : 0;
    EXPECT_LE(wide, 5 + 5) << count;
    std::vector<int64_t> firsts;
    for (int64_t b = 0; b < 64; ++b) firsts.push_back(dataset->length(order.at(0, b * kBatch)));
    EXPECT_FALSE(std::ranges::is_sorted(firsts)) << "batches come in no random order";
  }
}

TEST(GroupByLength, WithBalancedClassesToo) {
  const auto dataset = ordered(1000, true, true);
  EpochOrder order(dataset->order(), 7, true, 10);
  std::map<int32_t, int64_t> times;
  for (int64_t p = 0; p < 1000; ++p) ++times[Samples::class_of(order.at(0, p))];
  EXPECT_GT(times[0], 250);
  int64_t wide = 0;
  for (int64_t b = 0; b < 100; ++b) wide += spread(order, *dataset, b, 10) > 4 ? 1 : 0;
  EXPECT_LE(wide, 10);
}

// What loaders of 1, 2 and 4 ranks read of eight lanes.
TEST(GroupByLength, IsTheSameOnAnyRanks) {
  const auto dataset = ordered(203, true, true);
  const auto read = [&](int ranks) {
    std::vector<std::vector<int32_t>> of_lane(8);
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderOptions options;
      const int local = 8 / ranks;
      options.geometry = {2, 8, rank * local, local};
      options.seed = 5;
      options.shuffle = true;
      options.steps = 40;
      options.threads = rank + 1;
      test::TestLoader loader(*dataset, options);
      while (const LaneBatch* lanes = loader.loader.next())
        for (int lane = 0; lane < local; ++lane) {
          const auto* rows = reinterpret_cast<const int32_t*>(lanes[lane].input);
          auto& all = of_lane[static_cast<size_t>(rank * local + lane)];
          all.insert(all.end(), rows, rows + 2);
        }
    }
    return of_lane;
  };
  const auto one = read(1);
  EXPECT_EQ(read(2), one);
  EXPECT_EQ(read(4), one);
}

TEST(Ordered, RefusesWhatItCannotOrder) {
  DataConfig config;
  config.balance_classes = true;
  const auto refusal = [&](const config::ModelTraits& model) {
    return error_of([&] { check_order(config, model); }, ExitCode::kUsage);
  };
  EXPECT_EQ(refusal(test::mlp()), "no error");
  EXPECT_EQ(refusal(test::encoder(config::TextTask::kSequenceClass, 8)), "no error");
  expect_parts(refusal(test::mlp(Loss::kMeanSquaredError)),
               {"data.balance_classes", "class label"});
  expect_parts(refusal(test::encoder(config::TextTask::kTokenClasses, 8)),
               {"data.balance_classes"});
  expect_parts(refusal(test::gpt(8)), {"data.balance_classes"});
  config.shuffle = false;
  expect_parts(refusal(test::mlp()), {"data.balance_classes", "data.shuffle"});
  config = {};
  config.group_by_length = true;
  expect_parts(refusal(test::mlp()), {"data.group_by_length", "takes text"});
  EXPECT_EQ(refusal(test::gpt(8)), "no error");
  expect_parts(error_of([] { ordered(10, false, true, /*padded=*/false); }, ExitCode::kUsage),
               {"data.group_by_length", "padded"});
}

}  // namespace
}  // namespace lockstep::data

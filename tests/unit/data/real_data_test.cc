// Well-known data sets, where they lie on this machine: catches what made-up files do not have.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "files.h"
#include "runtime/data/dataset.h"

namespace lockstep::data {
namespace {

class RealData : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* given = std::getenv("LOCKSTEP_TEST_DATA");
    const std::filesystem::path root =
        given != nullptr ? given : LOCKSTEP_SOURCE_DIR "/../shared/data";
    folder_ = root / GetParam();
    if (!std::filesystem::exists(folder_))
      GTEST_SKIP() << "skipped: no " << folder_
                   << "; set LOCKSTEP_TEST_DATA to a folder with data sets";
  }
  OpenedData open(decltype(DataConfig::source) source,
                  const config::ModelTraits& model,
                  BadRecords policy = BadRecords::kFail) {
    DataConfig config;
    config.source = std::move(source);
    config.dir = folder_.string();
    config.bad_records = policy;
    return open_data(config, model, 1, true);
  }
  std::filesystem::path folder_;
};

class Adult : public RealData {};
INSTANTIATE_TEST_SUITE_P(Folder, Adult, ::testing::Values("adult"));

TEST_P(Adult, HasItsKnownCounts) {
  TableConfig table;
  table.train = "adult-train.csv.gz";
  table.eval = "adult-test.csv.gz";
  table.header = false;
  table.target = "14";
  const OpenedData opened = open(table, test::mlp());
  EXPECT_EQ(opened.summary.train_samples, 32561);
  EXPECT_EQ(opened.summary.eval_samples, 16281);
  EXPECT_EQ(opened.summary.classes, 2);
  EXPECT_EQ(opened.summary.bad_records, 0);
  // 6 numeric columns; names without "?": workclass 8, education 16, marital 7, occupation 14,
  // relationship 6, race 5, sex 2, country 41; and one slot for missing and unknown in each of
  // the 8.
  EXPECT_EQ(opened.summary.features, 6 + (8 + 16 + 7 + 14 + 6 + 5 + 2 + 41) + 8);
  int64_t rich = 0, rich_eval = 0;
  double sum = 0;
  for (int64_t i = 0; i < 32561; ++i) {
    const auto sample = test::read<float, int32_t>(*opened.train, {.index = i});
    rich += sample.target[0];
    sum += sample.input[0];
  }
  for (int64_t i = 0; i < 16281; ++i)
    rich_eval += test::read<float, int32_t>(*opened.eval, {.index = i}).target[0];
  EXPECT_EQ(rich, 7841);
  EXPECT_EQ(rich_eval, 3846);
  EXPECT_NEAR(sum / 32561, 0, 1e-5);
}

class FashionMnist : public RealData {};
INSTANTIATE_TEST_SUITE_P(Folder, FashionMnist, ::testing::Values("fashion-mnist"));

TEST_P(FashionMnist, HasItsKnownCounts) {
  IdxConfig idx;
  idx.train_images = "train-images-idx3-ubyte.gz";
  idx.train_labels = "train-labels-idx1-ubyte.gz";
  idx.eval_images = "t10k-images-idx3-ubyte.gz";
  idx.eval_labels = "t10k-labels-idx1-ubyte.gz";
  idx.mean = 0.2860f;  // the known mean and deviation of its pixels
  idx.std = 0.3530f;
  const OpenedData opened = open(idx, test::mlp());
  EXPECT_EQ(opened.summary.train_samples, 60000);
  EXPECT_EQ(opened.summary.eval_samples, 10000);
  EXPECT_EQ(opened.summary.features, 784);
  EXPECT_EQ(opened.summary.classes, 10);
  int64_t counts[10] = {};
  double sum = 0, squares = 0;
  std::vector<float> x(784);
  for (int64_t i = 0; i < 60000; ++i) {
    int32_t label;
    opened.train->read(
        {.index = i}, reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(&label));
    ++counts[label];
    for (float pixel : x) {
      sum += pixel;
      squares += pixel * pixel;
    }
  }
  for (int64_t count : counts) EXPECT_EQ(count, 6000);
  EXPECT_NEAR(sum / (60000 * 784.0), 0, 1e-3);  // four digits are known
  EXPECT_NEAR(std::sqrt(squares / (60000 * 784.0)), 1, 1e-3);
}

class TinyShakespeare : public RealData {};
INSTANTIATE_TEST_SUITE_P(Folder, TinyShakespeare, ::testing::Values("tinyshakespeare"));

TEST_P(TinyShakespeare, BeginsAsItDoes) {
  TextConfig text;
  text.train = "input.txt";
  text.eval_fraction = 0.1f;
  const config::ModelTraits model = test::gpt(64);
  const OpenedData opened = open(text, model);
  EXPECT_EQ(opened.train->resident_bytes() + opened.eval->resident_bytes(), 1115394);
  EXPECT_EQ(opened.summary.classes, 256);
  const auto sample = test::read<int32_t, int32_t>(*opened.train, {.index = 0});
  EXPECT_EQ(std::string(sample.input.begin(), sample.input.begin() + 14), "First Citizen:");
  EXPECT_EQ(std::string(sample.target.begin(), sample.target.begin() + 13), "irst Citizen:");
}

}  // namespace
}  // namespace lockstep::data

// Catches planes, labels or records that are mixed up, and files of another layout that pass.

#include <gtest/gtest.h>

#include "files.h"
#include "runtime/data/dataset.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

// Pixel i of channel c of record r is i + 50 c + r.
std::string record(int r, const std::string& labels) {
  std::string text = labels;
  for (int c = 0; c < 3; ++c)
    for (int i = 0; i < 1024; ++i) text += static_cast<char>(i + 50 * c + r);
  return text;
}

class Cifar : public ::testing::Test {
 protected:
  OpenedData open(bool need_train = true) {
    config_.dir = folder_.path();
    config_.source = cifar_;
    return test::open_images(config_, 1, need_train);
  }
  std::vector<int32_t> labels(const Dataset& data) {
    std::vector<int32_t> found;
    for (int64_t i = 0; i < data.samples(); ++i)
      found.push_back(test::read<uint8_t, int32_t>(data, {.index = i}).target[0]);
    return found;
  }
  test::TemporaryFolder folder_;
  DataConfig config_;
  CifarConfig cifar_;
};

TEST_F(Cifar, ReadsFilesOneAfterTheOther) {
  cifar_.train = {folder_.write("a", record(0, "\x03") + record(1, std::string(1, '\0'))),
                  folder_.write("b.gz", test::gzip(record(2, "\x09")))};
  cifar_.eval = {folder_.write("e", record(7, "\x01"))};
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.height, 32);
  EXPECT_EQ(opened.summary.width, 32);
  EXPECT_EQ(opened.summary.channels, 3);
  EXPECT_EQ(opened.summary.features, 3072);
  EXPECT_EQ(opened.summary.classes, 10);
  EXPECT_EQ(opened.summary.mean, (std::vector<float>{0.485f, 0.456f, 0.406f}));
  EXPECT_EQ(opened.summary.std, (std::vector<float>{0.229f, 0.224f, 0.225f}));
  EXPECT_EQ(opened.train->input().dtype, DType::kU8);
  EXPECT_EQ(opened.train->input().shape, (Shape{32, 32, 3}));
  EXPECT_EQ(labels(*opened.train), (std::vector<int32_t>{3, 0, 9}));
  EXPECT_EQ(labels(*opened.eval), (std::vector<int32_t>{1}));
  const auto sample = test::read<uint8_t, int32_t>(*opened.train, {.index = 2});
  for (int i = 0; i < 1024; ++i)
    for (int c = 0; c < 3; ++c)
      ASSERT_EQ(sample.input[static_cast<size_t>(3 * i + c)], (i + 50 * c + 2) % 256);
  EXPECT_EQ(open(false).train, nullptr);
}

TEST_F(Cifar, HundredHasTwoLabels) {
  cifar_.classes = 100;
  cifar_.train = {folder_.write("a", record(0, "\x13\x62"))};
  EXPECT_EQ(labels(*open().train), (std::vector<int32_t>{98}));
  EXPECT_EQ(open().summary.classes, 100);
  cifar_.coarse = true;
  EXPECT_EQ(labels(*open().train), (std::vector<int32_t>{19}));
  EXPECT_EQ(open().summary.classes, 20);
}

TEST_F(Cifar, RefusesAnotherLayout) {
  cifar_.train = {folder_.write("a", record(0, "\x03") + "x")};
  expect_parts(error_of([&] { open(); }), {"/a: the size of 3074 bytes", "3073", "CIFAR-10"});
  cifar_.classes = 100;
  EXPECT_EQ(open().train->samples(), 1);  // one record of CIFAR-100, as it happens
  cifar_.train = {"absent"};
  expect_parts(error_of([&] { open(); }), {"data.cifar.train", "absent"});
}

TEST_F(Cifar, BadLabelsFollowThePolicy) {
  const std::string bad = record(0, "\x0a");
  cifar_.train = {folder_.write("a", record(0, "\x01") + bad + bad + record(1, "\x02") + bad)};
  expect_parts(error_of([&] { open(); }), {"/a: record 1: label 10", "below 10", "SKIP"});
  config_.max_bad_fraction = 0.6f;
  config_.bad_records = BadRecords::kSkip;
  EXPECT_EQ(labels(*open().train), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(open().summary.bad_records, 3);
  config_.bad_records = BadRecords::kReplace;
  EXPECT_EQ(labels(*open().train), (std::vector<int32_t>{1, 2, 2, 2, 2}));
  config_.max_bad_fraction = 0.5f;
  expect_parts(error_of([&] { open(); }), {"3 of 5", "max_bad_fraction = 0.5", "record 1"});
}

// As features of an MLP: the same pixels, normalised.
TEST_F(Cifar, FeedsAnMlp) {
  cifar_.train = {folder_.write("a", record(5, "\x03"))};
  config_.image.mean = {0.5f, 0.25f, 0};
  config_.image.std = {1, 0.5f, 2};
  config_.dir = folder_.path();
  config_.source = cifar_;
  const OpenedData opened = open_data(config_, test::mlp(), 1, true);
  EXPECT_EQ(opened.summary.height, 0);
  const auto sample = test::read<float, int32_t>(*opened.train, {.index = 0});
  ASSERT_EQ(sample.input.size(), 3072u);
  for (size_t i = 0; i < 1024; ++i)
    for (size_t c = 0; c < 3; ++c)
      ASSERT_EQ(sample.input[3 * i + c],
                (static_cast<float>((i + 50 * c + 5) % 256) / 255.0f - config_.image.mean[c]) /
                    config_.image.std[c]);
  EXPECT_EQ(error_of([&] { open_data(config_, test::mlp(Loss::kMeanSquaredError), 1, true); },
                     ExitCode::kUsage)
                .find("data: value is data.cifar"),
            0u);
}

}  // namespace
}  // namespace lockstep::data

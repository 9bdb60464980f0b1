// Catches wrong pixels, labels or normalisation, and IDX files that are believed though they lie.

#include "runtime/data/images/idx.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24),
          static_cast<char>(value >> 16),
          static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string idx(const std::vector<uint32_t>& extents, const std::string& values, char type = 8) {
  std::string file{'\0', '\0', type, static_cast<char>(extents.size())};
  for (uint32_t extent : extents) file += big_endian(extent);
  return file + values;
}

class Idx : public ::testing::Test {
 protected:
  Idx() {
    config_.dir = folder_.path();
    idx_.train_images = folder_.write(
        "images",
        idx({3, 2, 2}, std::string("\x00\x01\x02\x03\xff\xfe\xfd\xfc\x10\x20\x30\x40", 12)));
    idx_.train_labels = folder_.write("labels", idx({3}, std::string("\x00\x04\x01", 3)));
  }
  OpenedData open(bool need_train = true) {
    config_.source = idx_;
    return open_data(config_, test::mlp(), 1, need_train);
  }

  test::TemporaryFolder folder_;
  DataConfig config_;
  IdxConfig idx_;
};

TEST_F(Idx, ReadsNormalisedPixelsAndLabels) {
  idx_.mean = 0.25f;
  idx_.std = 0.5f;
  const OpenedData opened = open();
  EXPECT_EQ(opened.train->samples(), 3);
  EXPECT_EQ(opened.train->input().shape, Shape{4});
  EXPECT_EQ(opened.train->target().shape, Shape{});
  EXPECT_EQ(opened.summary.classes, 5);
  EXPECT_EQ(opened.summary.features, 4);
  EXPECT_EQ(opened.eval, nullptr);
  const auto sample = test::read<float, int32_t>(*opened.train, {.index = 1});
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(sample.input[i], (static_cast<float>(255 - i) / 255.0f - 0.25f) / 0.5f);
  EXPECT_EQ(sample.target[0], 4);
  EXPECT_EQ((test::read<float, int32_t>(*opened.train, {.index = 2}).target[0]), 1);
}

TEST_F(Idx, WarnsOfLabelsThatBeginAt1) {
  idx_.train_labels = folder_.write("labels", idx({3}, "\x01\x02\x01"));
  const OpenedData opened = open();
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"labels: the labels are 1 to 2", "subtract 1"});
}

TEST_F(Idx, ReadsGzipByContentNotByName) {
  const auto plain = test::read<float, int32_t>(*open().train, {.index = 2});
  idx_.train_images = folder_.write(
      "images.bin",
      test::gzip(
          idx({3, 2, 2}, std::string("\x00\x01\x02\x03\xff\xfe\xfd\xfc\x10\x20\x30\x40", 12))));
  const OpenedData opened = open();
  EXPECT_EQ((test::read<float, int32_t>(*opened.train, {.index = 2}).input), plain.input);
  // The labels are plain: 3 + 8 bytes; the images lie decompressed: 12 + 16 bytes.
  EXPECT_EQ(opened.train->resident_bytes(), 11 + 28);
}

TEST_F(Idx, ReadsGzipOfSeveralMembers) {
  const std::string whole = idx({3}, std::string("\x02\x03\x01", 3));
  idx_.train_labels = folder_.write(
      "l.gz", test::gzip(whole.substr(0, 5)) + test::gzip(whole.substr(5)) + std::string(9, '\0'));
  EXPECT_EQ((test::read<float, int32_t>(*open().train, {.index = 1}).target[0]), 3);
}

TEST_F(Idx, EvaluationMayLackClassesButNotExceedThem) {
  idx_.eval_images = folder_.write("eval-images", idx({1, 4}, "abcd"));
  idx_.eval_labels = folder_.write("eval-labels", idx({1}, "\x03"));
  const OpenedData opened = open(false);
  EXPECT_EQ(opened.train, nullptr);
  EXPECT_EQ(opened.eval->samples(), 1);
  EXPECT_EQ(opened.summary.classes, 5);  // those of the training file
  idx_.eval_labels = folder_.write("eval-labels", idx({1}, "\x05"));
  expect_parts(error_of([&] { open(); }), {"eval-labels", "label 5 of record 0", "not below 5"});
}

TEST_F(Idx, RefusesWhatDoesNotFitTogether) {
  const std::string good = idx_.train_images;
  idx_.train_images = folder_.write("two", idx({2, 2, 2}, "abcdefgh"));
  expect_parts(error_of([&] { open(); }), {"two has 2 images", "labels has 3 labels"});
  idx_.train_images = good;
  idx_.eval_images = folder_.write("eval-images", idx({1, 5}, "abcde"));
  idx_.eval_labels = folder_.write("eval-labels", idx({1}, "\x03"));
  expect_parts(error_of([&] { open(); }), {"eval-images: images have 5 bytes", "have 4"});
  config_.source = idx_;
  expect_parts(
      error_of([&] { open_data(config_, test::mlp(Loss::kSoftmaxCrossEntropy, 3), 1, true); }),
      {"largest label is 4", "model.mlp.outputs is 3, and must be at least 5"});
  expect_parts(error_of([&] { open_data(config_, test::mlp(Loss::kMeanSquaredError), 1, true); },
                        ExitCode::kUsage),
               {"value is data.idx", "with model.mlp, whose targets are values"});
  expect_parts(error_of([&] { open_data(config_, test::gpt(1024), 1, true); }, ExitCode::kUsage),
               {"value is data.idx", "allowed: data.text", "with model.gpt"});
}

TEST_F(Idx, RefusesCorruptFiles) {
  const std::string good = idx({3, 2, 2}, "abcdefghijkl");
  struct Case {
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {good.substr(0, 3), {"3 bytes are too few"}},
      {good.substr(0, 10), {"truncated in the IDX header", "10 of 16 bytes"}},
      {good.substr(0, 27), {"truncated", "promises 12 bytes", "has 11"}},
      {good + "x", {"too long", "promises 12 bytes", "has 13"}},
      {"\x89PNG\r\n" + good, {"is not an IDX file", "0x89504e47"}},
      {"<!DOCTYPE html><html>", {"is a web page (HTML), not an IDX file", "download"}},
      {idx({3, 2, 2}, "abcdefghijkl", 0x0D), {"element type 0x0d", "0x08"}},
      {idx({12}, "abcdefghijkl"), {"1 dimensions", "2 to 4"}},
      {idx({0, 2, 2}, ""), {"dimension 0", "is 0"}},
      {idx({0xffffffffu, 0xffffffffu, 0xffffffffu}, "abc"), {"truncated", "over 2^64", "has 3"}},
      {idx({0xffffffffu, 28, 28}, "abc"), {"truncated", "promises 3367254359280 bytes"}},
      {"", {"the file is empty"}},
  };
  for (const Case& bad : cases) {
    idx_.train_images = folder_.write("bad", bad.bytes);
    const std::string message = error_of([&] { open(); });
    expect_parts(message, {"/bad"});
    expect_parts(message, bad.parts);
  }
  idx_.train_images = "absent";
  expect_parts(error_of([&] { open(); }), {"data.idx.train_images", "absent", "No such file"});
  idx_.train_images = "";
  expect_parts(error_of([&] { open(); }), {"data.idx.train_images is empty"});
}

TEST_F(Idx, RefusesCorruptGzip) {
  const std::string good = test::gzip(idx({3, 2, 2}, "abcdefghijkl"));
  std::string flipped = good;
  flipped[good.size() - 6] = static_cast<char>(flipped[good.size() - 6] ^ 1);  // in the checksum
  const std::vector<std::pair<std::string, std::string>> cases = {
      {good.substr(0, good.size() - 3), "truncated"},
      {flipped, "corrupt gzip data"},
      {good + "garbage", "7 bytes of garbage"},
  };
  for (const auto& [bytes, part] : cases) {
    idx_.train_images = folder_.write("bad.gz", bytes);
    expect_parts(error_of([&] { open(); }), {"bad.gz", part});
  }
}

// 400 MiB of zeros from about 400 KiB, after `first`.
std::string bomb_of(const std::string& first) {
  std::string bomb = test::gzip(first);
  const std::string mebibyte = test::gzip(std::string(1 << 20, '\0'));
  for (int i = 0; i < 400; ++i) bomb += mebibyte;
  return bomb;
}

int64_t peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Gzip, ABombIsRefusedBeforeMemoryIsTaken) {
  const std::string bomb = bomb_of("");
  ASSERT_LT(bomb.size(), size_t{1} << 20);
  const int64_t before_kib = peak_kib();
  expect_parts(error_of([&] { gunzip(test::bytes_of(bomb), "bomb"); }),
               {"bomb", "the limit for a gzip file"});
  EXPECT_LT(peak_kib() - before_kib, 16 << 10);  // half the limit would be more
}

TEST_F(Idx, CompressedFilesEndWhereTheirHeaderSays) {
  const int64_t before_kib = peak_kib();
  idx_.train_images = folder_.write("long.gz", bomb_of(idx({3, 2, 2}, std::string(12, 'x'))));
  expect_parts(error_of([&] { open(); }), {"long.gz", "more than the 28 bytes that its header"});
  idx_.train_images = folder_.write("short.gz", test::gzip(idx({3, 2, 2}, "few")));
  expect_parts(error_of([&] { open(); }), {"short.gz", "truncated"});
  idx_.train_images = folder_.write("huge.gz", test::gzip(idx({1 << 30, 2, 2}, "few")));
  expect_parts(error_of([&] { open(); }), {"huge.gz", "the limit for a gzip file"});
  EXPECT_LT(peak_kib() - before_kib, 16 << 10);
}

TEST(Gzip, RestoresAnySize) {
  for (size_t size : {0, 1, 4095, 4096, 4097, 1 << 20}) {
    std::string text(size, 'x');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 2654435761u >> 24);
    const std::string packed = test::gzip(text);
    const auto restored = gunzip(test::bytes_of(packed), "x");
    ASSERT_EQ(std::string(reinterpret_cast<const char*>(restored.data()), restored.size()), text)
        << size;
  }
}

}  // namespace
}  // namespace lockstep::data

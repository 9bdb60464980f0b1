// Catches records that are not what was packed, damage that goes unnoticed, and unfinished files
// that look finished.

#include "runtime/data/images/record_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "files.h"
#include "images.h"
#include "runtime/base/file.h"
#include "runtime/data/dataset.h"

namespace lockstep::data {
namespace {

using test::bytes_of;
using test::error_of;
using test::expect_parts;

class RecordFile : public ::testing::Test {
 protected:
  RecordFile() : path_((folder_.path() / "f.records").string()) {
    RecordWriter writer(path_);
    writer.add(bytes_of(png_), 1, {});
    const auto& pixels = raw_.pixels;
    writer.add(std::as_bytes(std::span(pixels)), 0, {raw_.height, raw_.width});
    writer.finish(2, {"cats", "dogs"});
    file_ = read_file(path_, 1 << 20);
    config_.dir = folder_.path();
    config_.source = RecordsConfig{"f.records", ""};
    config_.image.size = 8;
    config_.image.resize = 8;
  }
  test::TemporaryFolder folder_;
  std::string path_;
  std::string png_ = test::encode_png(test::make_image(8, 8, 3, 1));
  test::Image raw_ = test::make_image(16, 8, 3, 2);
  std::string file_;
  DataConfig config_;
};

TEST_F(RecordFile, GivesBackWhatWasPacked) {
  const RecordIndex index = parse_record_file(bytes_of(file_), "f");
  EXPECT_EQ(index.classes, 2);
  EXPECT_EQ(index.class_names, (std::vector<std::string>{"cats", "dogs"}));
  ASSERT_EQ(index.entries.size(), 2u);
  EXPECT_EQ(file_.substr(index.entries[0].offset, index.entries[0].bytes), png_);
  const OpenedData opened = test::open_images(config_, 1, true);
  EXPECT_EQ(opened.summary.classes, 2);
  const auto first = test::read<uint8_t, int32_t>(*opened.train, {.index = 0});
  EXPECT_EQ(first.target[0], 1);
  EXPECT_EQ(first.input, test::make_image(8, 8, 3, 1).pixels);
  // Shorter side 8 already: the centre is cut out.
  const auto second = test::read<uint8_t, int32_t>(*opened.train, {.index = 1});
  EXPECT_EQ(second.target[0], 0);
  EXPECT_EQ(second.input, test::part_of(raw_, {4, 12, 0, 8}).pixels);
}

TEST_F(RecordFile, EveryDamagedByteIsNoticed) {
  const RecordIndex good = parse_record_file(bytes_of(file_), "f");
  const size_t payload_end = good.entries[1].offset + good.entries[1].bytes;
  for (size_t at = 0; at < file_.size(); ++at) {
    if (at >= 72 && at < 128) continue;  // the header's zeros
    std::string damaged = file_;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    if (at < 128 || at >= payload_end) {
      ASSERT_NE(error_of([&] { parse_record_file(bytes_of(damaged), "f"); }), "no error") << at;
      continue;
    }
    if (at % 37 != 0) continue;  // opening and reading takes longer
    folder_.write("f.records", damaged);
    const OpenedData opened = test::open_images(config_, 1, true);
    const int record = at < good.entries[1].offset ? 0 : 1;
    expect_parts(error_of([&] { test::read<uint8_t, int32_t>(*opened.train, {.index = record}); }),
                 {fmt::format("f.records: record {}", record), "checksum"});
  }
}

TEST_F(RecordFile, RefusesCutAndForeignFiles) {
  for (size_t length = 0; length < file_.size(); length += 13)
    EXPECT_NE(error_of([&] { parse_record_file(bytes_of(file_.substr(0, length)), "f"); }),
              "no error");
  expect_parts(error_of([&] { parse_record_file(bytes_of(file_ + "x"), "f"); }), {"too long"});
  expect_parts(error_of([&] { parse_record_file(bytes_of(png_), "f"); }), {"lockstep data pack"});
}

TEST_F(RecordFile, UnfinishedFilesAreNone) {
  const std::string other = (folder_.path() / "other").string();
  RecordWriter(other).add(bytes_of(png_), 1, {});
  expect_parts(error_of([&] { parse_record_file(bytes_of(read_file(other, 1 << 20)), "o"); }),
               {"o: is not a record file"});
}

// Its file may lack the last classes, but a class has the same name in both.
TEST_F(RecordFile, EvaluationHasTheClassesOfTraining) {
  config_.source = RecordsConfig{"f.records", "eval"};
  const auto open_with = [&](const std::vector<std::string>& names, int64_t classes) {
    RecordWriter writer(folder_.path() / "eval");
    writer.add(bytes_of(png_), 0, {});
    writer.finish(classes, names);
    return test::open_images(config_, 1, true).summary.classes;
  };
  EXPECT_EQ(open_with({"cats", "dogs"}, 2), 2);
  EXPECT_EQ(open_with({"cats"}, 1), 2);
  EXPECT_EQ(open_with({}, 1), 2);
  expect_parts(error_of([&] {
                 open_with({"cats", "dogs", "eels"}, 3);
               }),
               {"eval", "3 classes", "up to 2"});
  expect_parts(error_of([&] {
                 open_with({"cats", "eels"}, 2);
               }),
               {"eval", "class 1 is 'eels'", "'dogs'"});
}

}  // namespace
}  // namespace lockstep::data

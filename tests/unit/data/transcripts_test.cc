// Catches: frames or symbols at wrong places, padding that is not zero, symbols numbered in another
// order than documented, texts that no path can spell, bad records without their place.
#include <gtest/gtest.h>

#include <cmath>

#include "files.h"
#include "runtime/data/format.h"
#include "runtime/data/placeholder.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;

constexpr int64_t kFeatures = 2;

std::string npy(const std::string& type, const std::string& shape, const std::string& values) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.append(64 - (10 + header.size() + 1) % 64, ' ').append("\n");
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + values;
}

class TranscriptsTest : public ::testing::Test {
 protected:
  TranscriptsTest() {
    data_.dir = folder_.path();
    for (int64_t frames = 1; frames <= 9; ++frames) write(frames, kFeatures);
  }

  // 5.npy has frames (5, 2) with the numbers 0, 1, ...
  void write(int64_t frames, int64_t features) {
    Floats values(static_cast<size_t>(frames * features));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    write(std::to_string(frames) + ".npy", frames, features, values);
  }
  void write(const std::string& name, int64_t frames, int64_t features, const Floats& values) {
    folder_.write(name,
                  npy("<f4",
                      "(" + std::to_string(frames) + ", " + std::to_string(features) + ")",
                      std::string(reinterpret_cast<const char*>(values.data()),
                                  values.size() * sizeof(float))));
  }
  void train_on(const std::string& lines) { config_.train = folder_.write("train.jsonl", lines); }
  static std::string line(int64_t frames, const std::string& text) {
    return "{\"frames\": \"" + std::to_string(frames) + ".npy\", \"text\": \"" + text + "\"}\n";
  }

  // For a network that makes half as many frames.
  config::ModelTraits model() const {
    config::ModelTraits model = test::mlp(Loss::kCtc, outputs_);
    model.section = "onnx";
    model.file = "net.onnx";
    model.transcript = config::TranscriptTraits{
        .frames = 8, .features = kFeatures, .output_frames = 4, .blank = blank_};
    return model;
  }
  OpenedData open(bool need_train = true) {
    data_.source = config_;
    return open_data(data_, model(), 1, need_train);
  }
  static test::Sample<float, int32_t> read(const Dataset& dataset, int64_t index) {
    return test::read<float, int32_t>(dataset, {index});
  }

  test::TemporaryFolder folder_;
  DataConfig data_;
  TranscriptsConfig config_;
  int64_t outputs_ = 4, blank_ = 0;
};

TEST_F(TranscriptsTest, SamplesAreFramesAndARecord) {
  train_on(line(3, "ba") + line(8, "äab") + line(5, ""));
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), 3);
  EXPECT_EQ(opened.summary.features, 16);
  EXPECT_EQ(opened.summary.classes, 4);
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"", "a", "b", "ä"}));
  EXPECT_EQ(opened.summary.target_columns, 5);
  const auto first = read(*opened.train, 0);
  EXPECT_EQ(first.input, (Floats{0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(first.target, (Ints{2, 2, 2, 1, 0}));  // 3 of 8 frames are 2 of 4, rounded up
  EXPECT_EQ(read(*opened.train, 1).target, (Ints{4, 3, 3, 1, 2}));
  EXPECT_EQ(read(*opened.train, 2).target, (Ints{3, 0, 0, 0, 0}));
  EXPECT_EQ(opened.train->name_of(1).substr(0, 10), "line 2 of ");
}

TEST_F(TranscriptsTest, SymbolsAreListedAndTheBlankMayBeAnyClass) {
  config_.symbols = {"ch", "c", "h"};
  blank_ = 1;
  train_on(line(8, "chc") + line(8, "hc"));
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"ch", "", "c", "h"}));
  EXPECT_EQ(read(*opened.train, 0).target, (Ints{4, 2, 0, 2}));
  EXPECT_EQ(read(*opened.train, 1).target, (Ints{4, 2, 3, 2}));
}

TEST_F(TranscriptsTest, RefusesWhatCannotBeLearned) {
  struct Case {
    std::string lines;
    std::vector<std::string> parts;
  };
  outputs_ = 3;
  config_.symbols = {"a", "b"};
  folder_.write("bytes.npy", npy("|u1", "(2, 2)", "abcd"));
  for (const Case& each : {
           Case{line(8, "ac"), {"train.jsonl:1", "its text has 'c'", "the 2 symbols 'a', 'b'"}},
           Case{line(8, "a") + line(3, "aba"),
                {"train.jsonl:2", "3 symbols, which need at least 3 frames", "makes 2 of its 3"}},
           Case{line(5, "abb"),
                {"3 symbols and 1 repeated in a row, which need at least 4 frames", "3 of its 5"}},
           Case{line(9, "a"), {"9.npy has 9 frames; the network takes at most 8"}},
           Case{line(77, "a"), {"train.jsonl:1", "77.npy", "No such file"}},
           Case{"{\"frames\": \"bytes.npy\", \"text\": \"a\"}\n",
                {"bytes.npy has uint8", "allowed: float32 (frames, features)"}},
           Case{"{\"frames\": \"3.npy\"}\n", {"train.jsonl:1", "'text' is missing"}},
           Case{"{\"frames\": 3}\n{\n", {"train.jsonl"}},
       }) {
    train_on(each.lines);
    expect_parts(error_of([&] { open(); }), each.parts);
  }
  write(4, 3);
  train_on(line(4, "a"));
  expect_parts(error_of([&] { open(); }), {"4.npy has 3 features in a frame; the network takes 2"});
  config_.max_symbols = 1;
  train_on(line(8, "ab"));
  expect_parts(error_of([&] { open(); }), {"2 symbols; data.transcripts.max_symbols is 1"});
}

TEST_F(TranscriptsTest, OutputsAreTheSymbolsAndTheBlank) {
  outputs_ = 5;
  train_on(line(8, "ab"));
  expect_parts(error_of([&] { open(); }),
               {"the training texts have 2 symbols, 'a', 'b'",
                "'net.onnx' (model.onnx.file) has 5 outputs",
                "one for each symbol, and one for the blank"});
  config_.symbols = {"a", "a"};
  expect_parts(error_of(
                   [&] {
                     data_.source = config_;
                     format_of(data_)->check();
                   },
                   ExitCode::kUsage),
               {"data.transcripts.symbols", "'a'", "each symbol once"});
}

TEST_F(TranscriptsTest, BadRecordsAreSkippedOrReplaced) {
  outputs_ = 3;
  data_.max_bad_fraction = 1;
  config_.symbols = {"a", "b"};
  train_on(line(8, "x") + line(8, "ab") + line(77, "a") + line(4, "b"));
  data_.bad_records = BadRecords::kSkip;
  EXPECT_EQ(open().train->samples(), 2);
  data_.bad_records = BadRecords::kReplace;
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), 4);
  EXPECT_EQ(opened.summary.bad_records, 2);
  EXPECT_EQ(read(*opened.train, 0).target, read(*opened.train, 1).target);
}

TEST_F(TranscriptsTest, NumbersThatAreNotFiniteAreNamed) {
  outputs_ = 2;
  write("nan.npy", 2, kFeatures, {1, 2, 3, std::nanf("")});
  train_on("{\"frames\": \"nan.npy\", \"text\": \"a\"}\n");
  const OpenedData opened = open();
  expect_parts(error_of([&] { read(*opened.train, 0); }),
               {"nan.npy: feature 1 of frame 1 is nan", "line 1 of"});
}

TEST_F(TranscriptsTest, EvaluationDataMayLackTextsForPredictions) {
  outputs_ = 3;
  train_on(line(8, "ab") + line(8, "b"));
  config_.eval = folder_.write("eval.jsonl", line(8, "a") + "{\"frames\": \"3.npy\"}\n");
  data_.source = config_;
  expect_parts(error_of([&] { open(); }), {"eval.jsonl:2", "'text' is missing"});
  const OpenedData opened = open_inputs(data_, model(), 1);
  EXPECT_EQ(read(*opened.eval, 0).target, (Ints{4, 1, 1}));
  EXPECT_EQ(read(*opened.eval, 1).target, (Ints{2, -1, 0}));
}

TEST_F(TranscriptsTest, WarnsOfSymbolsThatNoTextHas) {
  config_.symbols = {"a", "b", "c"};
  train_on(line(8, "ab") + line(8, "ab"));
  const OpenedData opened = open();
  ASSERT_EQ(opened.summary.warnings.size(), 2u);
  expect_parts(opened.summary.warnings[0], {"no training text has 1 of the 3 symbols: 'c'"});
  expect_parts(opened.summary.warnings[1], {"all 2 training texts are the same"});
}

TEST_F(TranscriptsTest, PlaceholdersHaveTheShapesOfThePlan) {
  config_.train = "missing.jsonl";
  data_.source = config_;
  const OpenedData opened = open_data_or_placeholder(data_, model(), 1);
  EXPECT_EQ(opened.train->input().shape, (Shape{16}));
  EXPECT_EQ(opened.train->target().shape, (Shape{6}));
  expect_parts(opened.summary.placeholder, {"missing.jsonl does not exist", "4 outputs"});
}

}  // namespace
}  // namespace lockstep::data

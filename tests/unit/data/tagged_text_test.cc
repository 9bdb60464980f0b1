// Catches: tags at other pieces than the first one of a word, sentences that run into each other,
// tags that depend on the order of sentences, bad sentences without their place.
#include <gtest/gtest.h>

#include "runtime/data/format.h"
#include "texts.h"

namespace lockstep::data {
namespace {

using test::encoder;
using test::error_of;
using test::expect_parts;
using Ints = std::vector<int32_t>;

class TaggedText : public ::testing::Test {
 protected:
  TaggedText() {
    data_.dir = folder_.path();
    config_.tokenizer = folder_.write("vocab.txt", test::kVocabulary);
  }
  void train_on(const std::string& text) { config_.train = folder_.write("train.txt", text); }
  OpenedData open(int64_t context = 8, bool need_train = true) {
    data_.source = config_;
    return open_data(data_, encoder(config::TextTask::kTokenClasses, context), 1, need_train);
  }
  // Tokens and, after them, the targets of all places.
  static Ints sample_of(const Dataset& dataset, int64_t index) {
    const auto sample = test::read<int32_t, int32_t>(dataset, {index});
    Ints found(sample.input.begin(), sample.input.begin() + dataset.length(index));
    found.insert(found.end(), sample.target.begin(), sample.target.end());
    return found;
  }

  test::TemporaryFolder folder_;
  DataConfig data_;
  TaggedTextConfig config_;
};

TEST_F(TaggedText, TheFirstPieceOfAWordHasItsTag) {
  train_on("-DOCSTART- -X- O\n\na N O\nbxy N B-P\n\n\nc\tN\tO\r\n");
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), 2);
  EXPECT_EQ(opened.summary.classes, 2);
  // B-P is 0, O is 1.
  EXPECT_EQ(sample_of(*opened.train, 0), (Ints{2, 5, 6, 13, 14, 3, -1, 1, 0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(sample_of(*opened.train, 1), (Ints{2, 7, 3, -1, 1, -1, -1, -1, -1, -1, -1}));
}

TEST_F(TaggedText, LinesEndAsOnAnySystem) {
  for (const char* text : {"a X\nb Y\n\nc X\n", "a X\r\nb Y\r\n\r\nc X", "a X\rb Y\r\rc X\r"}) {
    train_on(text);
    const OpenedData opened = open();
    ASSERT_EQ(opened.train->samples(), 2);
    EXPECT_EQ(sample_of(*opened.train, 1), (Ints{2, 7, 3, -1, 0, -1, -1, -1, -1, -1, -1}));
  }
}

TEST_F(TaggedText, ANoBreakSpaceIsNamed) {
  train_on("a X\nb\u00a0Y\n");
  expect_parts(error_of([&] { open(); }),
               {"train.txt:2", "has 1 column", "U+00A0 is a no-break space"});
}

TEST_F(TaggedText, LongSentencesAreCut) {
  train_on("a X\nbx Y\nc X\nd Y\n");
  const OpenedData opened = open(5);
  EXPECT_EQ(sample_of(*opened.train, 0), (Ints{2, 5, 6, 13, 3, -1, 0, 1, -1, -1}));
  expect_parts(opened.summary.description, {"1 were longer"});
}

TEST_F(TaggedText, ColumnsAndTagsAsListed) {
  config_.word = 1;
  config_.tag = 0;
  config_.tags = {"Y", "X", "Z"};
  train_on("X a other\nY b other\n");
  config_.eval = folder_.write("eval.txt", "Y c q\n");
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.classes, 3);
  EXPECT_EQ(sample_of(*opened.train, 0), (Ints{2, 5, 6, 3, -1, 1, 0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(sample_of(*opened.eval, 0), (Ints{2, 7, 3, -1, 0, -1, -1, -1, -1, -1, -1}));
}

TEST_F(TaggedText, EvaluationHasTheTagsOfTraining) {
  train_on("a X\n\nb Y\n");
  config_.eval = folder_.write("eval.txt", "a Y\n\nb X\nc Z\n");
  const auto message = error_of([&] { open(8, /*need_train=*/false); });
  expect_parts(message, {"eval.txt:3", "'c'", "'Z'", "'X', 'Y'"});
  data_.bad_records = BadRecords::kSkip;
  data_.max_bad_fraction = 0.5;
  const OpenedData opened = open(8, /*need_train=*/false);
  EXPECT_EQ(opened.summary.bad_records, 1);
  EXPECT_EQ(sample_of(*opened.eval, 0), (Ints{2, 5, 3, -1, 1, -1, -1, -1, -1, -1, -1}));
}

TEST_F(TaggedText, OutputsAloneNeedNoTags) {
  const auto inputs = [&](config::TextTask task, int64_t outputs = 0) {
    data_.source = config_;
    return open_inputs(data_, encoder(task, 8, outputs), 1);
  };
  train_on("a X\n\nb Y\n");
  config_.eval = folder_.write("eval.txt", "a\nb Z\n\nc\n");
  OpenedData opened = inputs(config::TextTask::kTokenClasses);
  EXPECT_EQ(opened.summary.classes, 2);
  ASSERT_EQ(opened.eval->samples(), 2);
  EXPECT_EQ(sample_of(*opened.eval, 0), (Ints{2, 5, 6, 3, -1, -1, -1, -1, -1, -1, -1, -1}));
  expect_parts(error_of([&] { open(8, /*need_train=*/false); }), {"eval.txt:1", "1 column"});
  config_.train = "nowhere.txt";
  expect_parts(error_of([&] { inputs(config::TextTask::kTokenClasses); }), {"nowhere.txt"});
  EXPECT_EQ(inputs(config::TextTask::kTokenClasses, 3).summary.classes, 3);
  EXPECT_EQ(inputs(config::TextTask::kHiddenStates).eval->samples(), 2);
  config_.word = 1;
  expect_parts(error_of([&] { inputs(config::TextTask::kHiddenStates); }),
               {"eval.txt:1", "1 column; the word is column 1"});
}

// Catches tags that are there and not read, and words at other tokens than their first.
TEST_F(TaggedText, OutputsAloneHaveTheTagsThatAreThere) {
  train_on("a X\n\nb Y\n");
  config_.eval = folder_.write("eval.txt", "a Y\nbx Z\nc\n\nd X\n");
  data_.source = config_;
  const OpenedData opened = open_inputs(data_, encoder(config::TextTask::kTokenClasses, 8, 2), 1);
  EXPECT_EQ(sample_of(*opened.eval, 0), (Ints{2, 5, 6, 13, 7, 3, -1, 1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(sample_of(*opened.eval, 1), (Ints{2, 8, 3, -1, 0, -1, -1, -1, -1, -1, -1}));
  std::vector<std::pair<int64_t, std::string>> words;
  for (const SampleWord& word : opened.eval->words(0)) words.emplace_back(word.token, word.text);
  EXPECT_EQ(words, (std::vector<std::pair<int64_t, std::string>>{{1, "a"}, {2, "bx"}, {4, "c"}}));
  config_.eval.clear();
  EXPECT_TRUE(open().train->words(0).empty());
}

TEST_F(TaggedText, BadSentencesAreReplaced) {
  train_on("a X\n\nb\n\nc Y\n\nd\n");
  expect_parts(error_of([&] { open(); }), {"train.txt:3", "1 column"});
  data_.bad_records = BadRecords::kReplace;
  data_.max_bad_fraction = 0.5;
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), 4);
  for (const int64_t i : {1, 2, 3})
    EXPECT_EQ(sample_of(*opened.train, i), (Ints{2, 7, 3, -1, 1, -1, -1, -1, -1, -1, -1})) << i;
}

TEST_F(TaggedText, SaysThatEveryTagIsTheSame) {
  train_on("a X\nb X\n");
  const OpenedData opened = open();
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"train.txt: all 2 training words have the class 'X'"});
}

}  // namespace
}  // namespace lockstep::data

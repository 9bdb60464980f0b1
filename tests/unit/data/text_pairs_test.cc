// Catches: texts of a sample that are swapped or of another row, a similarity that is read from
// another column or for training, texts without tokens that train, positives that occur twice
// without a warning, a cell that is taken for another one's column.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/data/format.h"
#include "runtime/data/text/text_samples.h"
#include "texts.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using Ints = std::vector<int32_t>;

class TextPairs : public ::testing::Test {
 protected:
  TextPairs() {
    data_.dir = folder_.path();
    config_.tokenizer = folder_.write("vocab.txt", test::kVocabulary);
  }

  static config::ModelTraits model() {
    config::ModelTraits model = test::encoder(config::TextTask::kEmbeddings, 8, 4);
    model.loss = Loss::kContrastive;
    return model;
  }
  OpenedData open() {
    data_.source = config_;
    return open_data(data_, model(), 1, true);
  }
  std::string check_error() {
    data_.source = config_;
    return error_of([&] { format_of(data_)->check(); }, ExitCode::kUsage);
  }
  void train_on(const std::string& name, const std::string& text) {
    config_.train = folder_.write(name, text);
  }
  // The tokens of each text of a sample, without padding.
  static std::vector<Ints> texts_of(const Dataset& dataset, int64_t index) {
    const auto sample = test::read<int32_t, float>(dataset, {index});
    std::vector<Ints> texts;
    for (size_t at = 0; at < sample.input.size(); at += kTextRows * 8) {
      Ints& text = texts.emplace_back();
      for (size_t t = 0; t < 8 && sample.input[at + 8 + t] == 0; ++t)
        text.push_back(sample.input[at + t]);
    }
    return texts;
  }
  static float target_of(const Dataset& dataset, int64_t index) {
    return test::read<int32_t, float>(dataset, {index}).target[0];
  }

  test::TemporaryFolder folder_;
  DataConfig data_;
  TextPairsConfig config_;
};

TEST_F(TextPairs, HaveTheTextsOfARow) {
  train_on("a.tsv", "positive\tanchor\nb c\ta\nc\ta b c d e f g h\n");
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), 2);
  EXPECT_EQ(texts_of(*opened.train, 0), (std::vector<Ints>{{2, 5, 3}, {2, 6, 7, 3}}));
  EXPECT_EQ(texts_of(*opened.train, 1), (std::vector<Ints>{{2, 5, 6, 7, 8, 9, 10, 3}, {2, 7, 3}}));
  EXPECT_EQ(opened.train->length(0), 4);
  EXPECT_EQ(opened.train->tokens(0), 3 + 4);
  EXPECT_TRUE(std::isnan(target_of(*opened.train, 0)));
  EXPECT_EQ(opened.summary.texts, 2);
  EXPECT_TRUE(opened.summary.warnings.empty());
  expect_parts(opened.summary.description, {"pairs of texts", "2 training", "1 were longer"});
}

TEST_F(TextPairs, ReadTheSameFromEveryFormat) {
  config_.negative = "negative";
  const std::string tsv = "anchor\tpositive\tnegative\na\tb\tc\nb c\td\te\n";
  train_on("a.tsv", tsv);
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.texts, 3);
  EXPECT_EQ(texts_of(*opened.train, 1), (std::vector<Ints>{{2, 6, 7, 3}, {2, 8, 3}, {2, 9, 3}}));
  const uint64_t checksum = opened.train->checksum();
  train_on("a.tsv.gz", test::gzip(tsv));
  EXPECT_EQ(open().train->checksum(), checksum);
  train_on("a.csv", "anchor,positive,negative\na,b,c\nb c,d,e\n");
  EXPECT_EQ(open().train->checksum(), checksum);
  train_on("a.jsonl",
           "{\"anchor\": \"a\", \"positive\": \"b\", \"negative\": \"c\"}\n"
           "{\"negative\": \"e\", \"positive\": \"d\", \"anchor\": \"b c\"}\n");
  EXPECT_EQ(open().train->checksum(), checksum);
}

TEST_F(TextPairs, SimilaritiesAreOfTheEvaluation) {
  config_.negative = "negative";
  config_.similarity = "score";
  train_on("a.tsv", "anchor\tpositive\tnegative\na\tb\tc\n");
  config_.eval = folder_.write("e.tsv", "score\tanchor\tpositive\n4.5\ta\tb\n-1\tc\td\n");
  const OpenedData opened = open();
  EXPECT_TRUE(opened.summary.has_similarities);
  EXPECT_TRUE(std::isnan(target_of(*opened.train, 0)));
  EXPECT_EQ(target_of(*opened.eval, 0), 4.5f);
  EXPECT_EQ(target_of(*opened.eval, 1), -1.0f);
  EXPECT_EQ(texts_of(*opened.eval, 1), (std::vector<Ints>{{2, 7, 3}, {2, 8, 3}, {2, 7, 3}}));
  config_.eval = folder_.write("e.tsv", "score\tanchor\tpositive\nhigh\ta\tb\n");
  expect_parts(error_of([&] { open(); }), {"e.tsv:2", "similarity 'high' is not a finite"});
}

TEST_F(TextPairs, BadRecordsAreNamed) {
  train_on("a.tsv", "anchor\tpositive\na\tb\n \tb\nc\t\nd\te\n");
  expect_parts(error_of([&] { open(); }), {"a.tsv:3", "its anchor has no tokens"});
  data_.bad_records = BadRecords::kSkip;
  data_.max_bad_fraction = 0.5;
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.bad_records, 2);
  ASSERT_EQ(opened.train->samples(), 2);
  EXPECT_EQ(texts_of(*opened.train, 1), (std::vector<Ints>{{2, 8, 3}, {2, 9, 3}}));
  train_on("a.tsv", "anchor\tother\na\tb\n");
  expect_parts(error_of([&] { open(); }), {"a.tsv", "data.text_pairs.positive", "positive"});
}

TEST_F(TextPairs, WarnOfPositivesThatAreFalseNegatives) {
  train_on("a.tsv", "anchor\tpositive\na\tb\nb\tc\nc\tb\nd\tb\ne\tc\nf\tg\n");
  const OpenedData opened = open();
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"2 positives are in more than one record (5 records)"});
}

TEST_F(TextPairs, FieldsThatContradictEachOtherAreRefused) {
  train_on("a.tsv", "anchor\tpositive\na\tb\n");
  EXPECT_EQ(check_error(), "no error");
  config_.similarity = "score";
  expect_parts(check_error(), {"data.text_pairs.similarity", "without data.text_pairs.eval"});
  config_.similarity = "";
  config_.negative = "positive";
  expect_parts(check_error(), {"data.text_pairs.negative", "data.text_pairs.positive"});
  config_.negative = "";
  config_.anchor = "";
  expect_parts(check_error(), {"data.text_pairs.anchor", "column"});
  config_.anchor = "anchor";
  config_.train = "a.txt";
  expect_parts(check_error(), {"data.text_pairs.train", ".tsv"});
  data_.source = config_;
  expect_parts(error_of(
                   [&] {
                     format_of(data_)->check_for_model(
                         test::encoder(config::TextTask::kSequenceClass, 8, 2));
                   },
                   ExitCode::kUsage),
               {"data.text_pairs", "EMBEDDINGS"});
}

}  // namespace
}  // namespace lockstep::data

// Catches: fields that a reader of CSV or JSON takes apart in another way, floats that lose digits,
// probabilities or labels in another column or row, padding that becomes rows, arrays that NumPy
// cannot read.
#include "launcher/run/predicted_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "runtime/base/file.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::launcher {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// Samples that have names, and words of the tokens 1 and 3 if `with_words`.
class Named final : public data::Dataset {
 public:
  std::vector<std::string> names;
  std::vector<int64_t> in_lines;
  bool with_words = false;

  int64_t samples() const override { return 2; }
  void read(const data::SampleKey&, std::byte*, std::byte*) const override {}
  int64_t resident_bytes() const override { return 0; }
  int64_t length(int64_t index) const override { return 3 - index; }
  std::vector<std::string> files() const override { return names; }
  std::vector<int64_t> lines() const override { return in_lines; }
  std::vector<data::SampleWord> words(int64_t index) const override {
    if (!with_words) return {};
    return index == 0 ? std::vector<data::SampleWord>{{1, "a"}, {2, "b,c"}}
                      : std::vector<data::SampleWord>{{0, "d"}};
  }
};

class PredictedRows : public ::testing::Test {
 protected:
  std::string text(PredictedKind kind,
                   PredictionFormat format = PredictionFormat::kCsv,
                   const std::string& target = "") {
    const std::filesystem::path path = folder_.path() / "out";
    write_table({found_, dataset_, kind, names_, target}, path, format);
    return read_file(path, 1 << 20);
  }

  testing::TemporaryFolder folder_;
  Named dataset_;
  train::Predictions found_ = {.samples = 2, .columns = 2};
  std::vector<std::string> names_;
};

TEST(TableField, AsRfc4180HasIt) {
  const auto csv = [](std::string_view text) { return table_field(text, ','); };
  EXPECT_EQ(csv("plain text"), "plain text");
  EXPECT_EQ(csv(""), "");
  EXPECT_EQ(csv("a,b"), "\"a,b\"");
  EXPECT_EQ(csv("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(csv("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(csv("old\rmac"), "\"old\rmac\"");
  EXPECT_EQ(csv(" blank"), "\" blank\"");
  EXPECT_EQ(csv("a\tb"), "a\tb");
  EXPECT_EQ(table_field("a\tb,c", '\t'), "\"a\tb,c\"");
  EXPECT_EQ(csv("caf\xe9"), "caf\xef\xbf\xbd");
  EXPECT_EQ(csv("café"), "café");
}

TEST(UniqueNames, OfColumns) {
  EXPECT_EQ(unique_names({"row", "label", "label", "label", "label (2)"}),
            (std::vector<std::string>{"row", "label", "label (2)", "label (3)", "label (2) (2)"}));
}

TEST_F(PredictedRows, OfClasses) {
  dataset_.names = {"a, \"b\".png", "c.png"};
  names_ = {"no", "yes"};
  found_.outputs = {0, 0, -1, 1};
  found_.labels = {1, -1};
  EXPECT_EQ(text(PredictedKind::kClasses),
            "file,label,predicted,probability,no,yes\n"
            "\"a, \"\"b\"\".png\",yes,no,0.5,0.5,0.5\n"
            "c.png,,yes,0.8807971,0.11920292,0.8807971\n");
  EXPECT_EQ(text(PredictedKind::kClasses, PredictionFormat::kJsonLines),
            "{\"file\":\"a, \\\"b\\\".png\",\"label\":\"yes\",\"predicted\":\"no\","
            "\"probability\":0.5,\"no\":0.5,\"yes\":0.5}\n"
            "{\"file\":\"c.png\",\"label\":null,\"predicted\":\"yes\","
            "\"probability\":0.8807971,\"no\":0.11920292,\"yes\":0.8807971}\n");
  EXPECT_EQ(text(PredictedKind::kClasses, PredictionFormat::kTsv).substr(0, 40),
            "file\tlabel\tpredicted\tprobability\tno\tyes\n");
}

TEST_F(PredictedRows, WithoutNamesAndLabels) {
  dataset_.in_lines = {2, 5};
  found_.outputs = {0, 0, -1, 1};
  found_.labels = {-1, -1};
  EXPECT_EQ(text(PredictedKind::kClasses),
            "row,line,predicted,probability,0,1\n"
            "0,2,0,0.5,0.5,0.5\n"
            "1,5,1,0.8807971,0.11920292,0.8807971\n");
}

TEST_F(PredictedRows, ABadRecordHasNone) {
  found_.outputs = {kNone, kNone, -1, 1};
  EXPECT_EQ(text(PredictedKind::kClasses),
            "row,predicted,probability,0,1\n"
            "0,,,,\n"
            "1,1,0.8807971,0.11920292,0.8807971\n");
  found_.columns = 1;
  found_.outputs = {kNone, 0};
  EXPECT_EQ(text(PredictedKind::kYesNo), "row,predicted,probability,0,1\n0,,,,\n1,0,0.5,0.5,0.5\n");
}

TEST_F(PredictedRows, ClassesNamedLikeColumnsStayApart) {
  names_ = {"label", "row"};
  found_.outputs = {0, 0, 0, 0};
  found_.labels = {1, 0};
  EXPECT_EQ(text(PredictedKind::kClasses, PredictionFormat::kJsonLines),
            "{\"row\":0,\"label\":\"row\",\"predicted\":\"label\",\"probability\":0.5,"
            "\"label (2)\":0.5,\"row (2)\":0.5}\n"
            "{\"row\":1,\"label\":\"label\",\"predicted\":\"label\",\"probability\":0.5,"
            "\"label (2)\":0.5,\"row (2)\":0.5}\n");
}

TEST_F(PredictedRows, OfOneAnswer) {
  found_.columns = 1;
  found_.outputs = {2, -1000};
  found_.values = {1, 0.25f};
  names_ = {"ham", "spam"};
  EXPECT_EQ(text(PredictedKind::kYesNo),
            "row,label,predicted,probability,ham,spam\n"
            "0,spam,spam,0.8807971,0.11920292,0.8807971\n"
            "1,0.25,ham,1,1,0\n");
}

TEST_F(PredictedRows, OfSeveralAnswers) {
  found_.outputs = {2, 0, -2, 0};
  found_.values = {1, 0, kNone, 1};
  names_ = {"cat", "dog"};
  EXPECT_EQ(text(PredictedKind::kSeveralYesNo),
            "row,label cat,label dog,cat,dog\n"
            "0,1,0,0.8807971,0.5\n"
            "1,,1,0.11920292,0.5\n");
}

TEST_F(PredictedRows, OfValues) {
  found_.columns = 1;
  found_.outputs = {0.1f, 16777216};
  EXPECT_EQ(text(PredictedKind::kValues), "row,predicted\n0,0.1\n1,16777216\n");
  found_.values = {kNone, 1.5f};
  EXPECT_EQ(text(PredictedKind::kValues, PredictionFormat::kCsv, "price"),
            "row,label,price\n0,,0.1\n1,1.5,16777216\n");
  found_.outputs[0] = kNone;
  EXPECT_EQ(text(PredictedKind::kValues, PredictionFormat::kJsonLines),
            "{\"row\":0,\"label\":null,\"predicted\":null}\n"
            "{\"row\":1,\"label\":1.5,\"predicted\":16777216}\n");
}

// The first sample has three tokens, the second one two; the fourth is padding.
TEST_F(PredictedRows, OfTokens) {
  found_.columns = 1;
  found_.tokens = 4;
  found_.outputs = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(text(PredictedKind::kValues),
            "row,token,predicted\n0,0,1\n0,1,2\n0,2,3\n1,0,5\n1,1,6\n");
  dataset_.with_words = true;
  EXPECT_EQ(text(PredictedKind::kValues),
            "row,token,word,predicted\n0,1,a,2\n0,2,\"b,c\",3\n1,0,d,5\n");
}

TEST(PredictedDocuments, HaveTheirLosses) {
  const testing::TemporaryFolder folder;
  write_table({{0, 0, 3, 1.5}, {0, 1, 2, 0.1}}, folder.path() / "out", PredictionFormat::kCsv);
  EXPECT_EQ(read_file(folder.path() / "out", 1 << 10),
            "row,document,counted,loss\n0,0,3,1.5\n0,1,2,0.1\n");
}

TEST(PredictionFormats, AreThoseOfTheEndings) {
  EXPECT_EQ(prediction_format("a.b/x.CSV"), PredictionFormat::kCsv);
  EXPECT_EQ(prediction_format("x.csv.npy"), PredictionFormat::kNpy);
}

TEST(Npy, HasItsShape) {
  const testing::TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  write_npy(folder.path() / "out", {2, 3}, values);
  const std::string file = read_file(folder.path() / "out", 1 << 10);
  ASSERT_EQ(file.size(), 128 + 24U);
  EXPECT_EQ(file.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }";
  EXPECT_EQ(file.substr(10, header.size()), header);
  EXPECT_EQ(file[127], '\n');
  EXPECT_EQ(std::memcmp(file.data() + 128, values.data(), 24), 0);
}

}  // namespace
}  // namespace lockstep::launcher

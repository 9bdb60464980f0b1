// Catches: tokens, segments or labels in wrong places, texts that are cut in another way than
// Hugging Face's tokenizers cut them, classes that depend on the order of lines, bad records that
// are believed or without their place, files that are read in another way than they were written.
#include <gtest/gtest.h>

#include <cmath>

#include <algorithm>
#include <numeric>

#include "runtime/data/format.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/text_encoding.h"
#include "texts.h"

namespace lockstep::data {
namespace {

using test::encoder;
using test::error_of;
using test::expect_parts;
using Ints = std::vector<int32_t>;

class LabelledText : public ::testing::Test {
 protected:
  LabelledText() {
    data_.dir = folder_.path();
    config_.tokenizer = folder_.write("vocab.txt", test::kVocabulary);
  }

  OpenedData open(config::TextTask task = config::TextTask::kSequenceClass,
                  int64_t context = 8,
                  int64_t outputs = 0,
                  bool need_train = true) {
    data_.source = config_;
    return open_data(data_, encoder(task, context, outputs), 1, need_train);
  }
  void train_on(const std::string& name, const std::string& text) {
    config_.train = folder_.write(name, text);
  }
  static Ints labels_of(const Dataset& dataset) {
    Ints labels;
    for (int64_t i = 0; i < dataset.samples(); ++i) {
      labels.push_back(test::read<int32_t, int32_t>(dataset, {i}).target[0]);
      EXPECT_EQ(dataset.label(i), labels.back());
    }
    return labels;
  }
  // The tokens of a sample without padding, its segments after them.
  static Ints tokens_of(const Dataset& dataset, int64_t index) {
    const auto sample = test::read<int32_t, int32_t>(dataset, {index});
    const auto context = static_cast<int64_t>(sample.input.size()) / 4;
    const int64_t length = dataset.length(index);
    const auto row = [&](int64_t number) {
      return Ints(sample.input.begin() + number * context,
                  sample.input.begin() + (number + 1) * context);
    };
    Ints documents(static_cast<size_t>(context), -1), positions(static_cast<size_t>(context), 0);
    std::fill_n(documents.begin(), length, 0);
    std::iota(positions.begin(), positions.begin() + length, 0);
    EXPECT_EQ(row(1), documents);
    EXPECT_EQ(row(2), positions);
    Ints found;
    for (const int64_t number : {0, 3}) {
      const Ints values = row(number);
      found.insert(found.end(), values.begin(), values.begin() + length);
      EXPECT_TRUE(
          std::all_of(values.begin() + length, values.end(), [](int32_t v) { return v == 0; }));
    }
    return found;
  }

  test::TemporaryFolder folder_;
  DataConfig data_;
  LabelledTextConfig config_;
};

TEST_F(LabelledText, HasSpecialTokensAndPadding) {
  train_on("a.tsv", "text\tlabel\na bxy\t1\nB\t0\n");
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), 2);
  EXPECT_EQ(tokens_of(*opened.train, 0), (Ints{2, 5, 6, 13, 14, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(tokens_of(*opened.train, 1), (Ints{2, 6, 3, 0, 0, 0}));
  EXPECT_EQ(labels_of(*opened.train), (Ints{1, 0}));
  EXPECT_EQ(opened.summary.classes, 2);
  EXPECT_EQ(opened.summary.vocabulary, 15);
  EXPECT_EQ(opened.summary.features, 8);
  EXPECT_TRUE(opened.summary.warnings.empty());
  expect_parts(opened.summary.description, {"2 training", "8 tokens", "2 classes"});
}

TEST_F(LabelledText, PairsHaveTwoSegmentsAndTheLongerTextIsCut) {
  config_.second_text = "other";
  train_on("a.csv", "label,text,other\n0,a,b c\n1,a b c d e,f g\n1,a b c d e,a b c d e\n");
  const OpenedData opened = open();
  EXPECT_EQ(tokens_of(*opened.train, 0), (Ints{2, 5, 3, 6, 7, 3, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(tokens_of(*opened.train, 1), (Ints{2, 5, 6, 7, 3, 10, 11, 3, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(tokens_of(*opened.train, 2), (Ints{2, 5, 6, 3, 5, 6, 7, 3, 0, 0, 0, 0, 1, 1, 1, 1}));
  expect_parts(opened.summary.description, {"pairs", "2 were longer"});
}

// As the package `tokenizers` 0.22 cuts them.
TEST(LongestFirst, IsThatOfTokenizers) {
  using Lengths = std::pair<int64_t, int64_t>;
  EXPECT_EQ(longest_first(3, 4, 7), Lengths(3, 4));
  EXPECT_EQ(longest_first(2, 9, 7), Lengths(2, 5));
  EXPECT_EQ(longest_first(9, 2, 7), Lengths(5, 2));
  EXPECT_EQ(longest_first(9, 9, 7), Lengths(3, 4));
  EXPECT_EQ(longest_first(10, 9, 7), Lengths(4, 3));
  EXPECT_EQ(longest_first(4, 9, 7), Lengths(3, 4));
  EXPECT_EQ(longest_first(9, 0, 7), Lengths(7, 0));
  EXPECT_EQ(longest_first(8, 8, 8), Lengths(4, 4));
}

TEST_F(LabelledText, ReadsTheSameFromEveryFormat) {
  const std::string tsv = "text\tlabel\n\"a\tb\"\tno\nc\tyes\n";
  train_on("a.tsv", tsv);
  const uint64_t checksum = open().train->checksum();
  train_on("a.tsv.gz", test::gzip(tsv));
  EXPECT_EQ(open().train->checksum(), checksum);
  train_on("a.csv", "label,text\r\nno,a b\r\nyes,c\r\n");
  EXPECT_EQ(open().train->checksum(), checksum);
  train_on("a.jsonl",
           "{\"text\": \"a b\", \"label\": \"no\"}\n\n{\"label\": \"yes\", \"text\": \"c\"}\n");
  EXPECT_EQ(open().train->checksum(), checksum);
  config_.text = "1";
  config_.label = "0";
  train_on("b.csv", "no,a b\nyes,c\n");  // no line of names
  EXPECT_EQ(open().train->checksum(), checksum);
  train_on("b.csv", "yes,a b\nyes,c\n");
  EXPECT_NE(open().train->checksum(), checksum);
}

TEST_F(LabelledText, WithoutQuotesTheyAreText) {
  config_.quotes = false;
  config_.text = "#1";
  train_on("a.tsv", "\xEF\xBB\xBF#1\tlabel\n\" a\t0\na \"b\t1\n");
  const OpenedData opened = open();
  EXPECT_EQ(tokens_of(*opened.train, 0), (Ints{2, 1, 5, 3, 0, 0, 0, 0}));
  EXPECT_EQ(tokens_of(*opened.train, 1), (Ints{2, 5, 1, 6, 3, 0, 0, 0, 0, 0}));
  config_.quotes = true;
  expect_parts(error_of([&] { open(); }), {"a.tsv:2", "quotes: false"});
}

TEST_F(LabelledText, ClassesAreNumbersOrSortedNamesOrListed) {
  train_on("a.csv", "text,label\na,2\nb,0\nc,2\n");
  OpenedData opened = open();
  EXPECT_EQ(opened.summary.classes, 3);
  EXPECT_TRUE(opened.summary.class_names.empty());
  EXPECT_EQ(labels_of(*opened.train), (Ints{2, 0, 2}));
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"a.csv", "1 has no sample (1)"});

  train_on("a.csv", "text,label\na,no\nb,maybe\nc,no\n");
  opened = open();
  EXPECT_EQ(opened.summary.classes, 2);
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"maybe", "no"}));
  EXPECT_EQ(labels_of(*opened.train), (Ints{1, 0, 1}));

  config_.labels = {"no", "maybe", "yes"};
  opened = open();
  EXPECT_EQ(opened.summary.classes, 3);
  EXPECT_EQ(opened.summary.class_names, config_.labels);
  EXPECT_EQ(labels_of(*opened.train), (Ints{0, 1, 0}));
  EXPECT_EQ(open(config::TextTask::kSequenceClass, 8, 5).summary.classes, 5);
  expect_parts(error_of([&] { open(config::TextTask::kSequenceClass, 8, 2); }),
               {"3 classes", "is 2"});

  train_on("a.csv", "text,label\na,no\nb,never\nc,no\n");
  expect_parts(error_of([&] { open(); }), {"a.csv:3", "'never'", "'no', 'maybe', 'yes'"});
}

TEST_F(LabelledText, EvaluationHasTheClassesOfTraining) {
  train_on("a.csv", "text,label\na,no\nb,yes\n");
  config_.eval = folder_.write("e.csv", "text,label\nc,yes\nc,no\n");
  EXPECT_EQ(labels_of(*open().eval), (Ints{1, 0}));
  const OpenedData alone = open(config::TextTask::kSequenceClass, 8, 0, /*need_train=*/false);
  EXPECT_EQ(alone.train, nullptr);
  EXPECT_EQ(labels_of(*alone.eval), (Ints{1, 0}));
  EXPECT_EQ(alone.summary.classes, 2);
  config_.eval = folder_.write("e.csv", "text,label\nc,yes\nc,maybe\n");
  expect_parts(error_of([&] { open(); }), {"e.csv:3", "'maybe'", "'no', 'yes'"});
}

TEST_F(LabelledText, OutputsAloneNeedNoLabels) {
  const auto inputs = [&](config::TextTask task, int64_t outputs = 0) {
    data_.source = config_;
    return open_inputs(data_, encoder(task, 8, outputs), 1);
  };
  train_on("a.csv", "text,label\na,no\nb,yes\nc,no\n");
  config_.eval = folder_.write("e.tsv", "index\ttext\n7\ta b\n8\tc\n");
  OpenedData opened = inputs(config::TextTask::kSequenceClass);
  EXPECT_EQ(opened.train, nullptr);
  EXPECT_EQ(opened.summary.classes, 2);
  ASSERT_EQ(opened.eval->samples(), 2);
  EXPECT_EQ(tokens_of(*opened.eval, 0), (Ints{2, 5, 6, 3, 0, 0, 0, 0}));
  EXPECT_EQ(labels_of(*opened.eval), (Ints{-1, -1}));
  expect_parts(
      error_of([&] { open(config::TextTask::kSequenceClass, 8, 0, /*need_train=*/false); }),
      {"e.tsv", "no column 'label'"});
  // Labels that are there may be anything.
  config_.eval = folder_.write("e.jsonl", "{\"text\": \"c\"}\n{\"text\": \"a\", \"label\": []}\n");
  EXPECT_EQ(tokens_of(*inputs(config::TextTask::kSequenceClass).eval, 1), (Ints{2, 5, 3, 0, 0, 0}));
  // A column with a name says that the first line has names, though nobody reads it.
  config_.text = "1";
  train_on("b.csv", "label,text\nno,a\nyes,b\n");
  config_.eval = folder_.write("e.tsv", "index\ttext\n7\ta b\n");
  EXPECT_EQ(inputs(config::TextTask::kSequenceClass).eval->samples(), 1);
  // The training file says how many classes there are, where the model does not.
  config_.train = "nowhere.csv";
  expect_parts(error_of([&] { inputs(config::TextTask::kSequenceClass); }), {"nowhere.csv"});
  EXPECT_EQ(inputs(config::TextTask::kSequenceClass, 3).summary.classes, 3);
  EXPECT_EQ(inputs(config::TextTask::kHiddenStates).eval->samples(), 1);
  opened = inputs(config::TextTask::kSequenceValues);
  EXPECT_EQ(opened.summary.target_columns, 1);
  EXPECT_TRUE(std::isnan(test::read<int32_t, float>(*opened.eval, {0}).target[0]));
  data_.bad_records = BadRecords::kReplace;
  data_.max_bad_fraction = 1;
  config_.eval = folder_.write("e.tsv", "index\ttext\n1\n2\ta b\n3\n");
  EXPECT_EQ(inputs(config::TextTask::kHiddenStates).eval->samples(), 3);
}

// Catches labels that are there and not read, or read and not known, so that a row gets lost.
TEST_F(LabelledText, OutputsAloneHaveTheLabelsThatAreThere) {
  const auto inputs = [&](config::TextTask task, const std::string& eval) {
    config_.eval = folder_.write("e.csv", eval);
    data_.source = config_;
    const int64_t outputs = task == config::TextTask::kSequenceValues ? 1 : 2;
    return open_inputs(data_, encoder(task, 8, outputs), 1);
  };
  train_on("a.csv", "text,label\na,no\nb,yes\n");
  const std::string eval = "label,text\nyes,a\n,b\nmaybe,c\nno,\"b\nc\"\nno,a\n";
  const OpenedData opened = inputs(config::TextTask::kSequenceClass, eval);
  EXPECT_EQ(labels_of(*opened.eval), (Ints{1, -1, -1, 0, 0}));
  EXPECT_EQ(opened.eval->lines(), (std::vector<int64_t>{2, 3, 4, 5, 7}));
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"no", "yes"}));
  const OpenedData values =
      inputs(config::TextTask::kSequenceValues, "label,text\n1.5,a\n,b\nmuch,c\n");
  EXPECT_EQ((test::read<int32_t, float>(*values.eval, {0}).target), std::vector<float>{1.5f});
  for (const int64_t row : {1, 2})
    EXPECT_TRUE(std::isnan(test::read<int32_t, float>(*values.eval, {row}).target[0])) << row;
  // Without the names of the classes, labels mean nothing.
  config_.train = "nowhere.csv";
  EXPECT_EQ(labels_of(*inputs(config::TextTask::kSequenceClass, eval).eval), Ints(5, -1));
}

TEST_F(LabelledText, Values) {
  train_on("a.jsonl", "{\"text\": \"a\", \"label\": 1.5}\n{\"text\": \"b\", \"label\": \"-2\"}\n");
  const OpenedData opened = open(config::TextTask::kSequenceValues);
  EXPECT_EQ(opened.summary.target_columns, 1);
  EXPECT_EQ(opened.summary.classes, 0);
  ASSERT_EQ(opened.train->target().shape, Shape({1}));
  EXPECT_EQ((test::read<int32_t, float>(*opened.train, {0}).target), std::vector<float>{1.5f});
  EXPECT_EQ((test::read<int32_t, float>(*opened.train, {1}).target), std::vector<float>{-2.0f});
  train_on("a.csv", "text,label\na,1\nb,much\n");
  expect_parts(error_of([&] { open(config::TextTask::kSequenceValues); }),
               {"a.csv:3", "'much'", "number"});
  train_on("a.csv", "text,label\na,1\nb,-1e39\n");
  expect_parts(error_of([&] { open(config::TextTask::kSequenceValues); }),
               {"a.csv:3", "'-1e39'", "not a finite float32 number"});
}

TEST_F(LabelledText, BadRecords) {
  data_.max_bad_fraction = 1;
  const std::string lines =
      "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\"\n[1]\n{\"text\": \"c\", \"label\": 1}\n"
      "{\"text\": \"d\"}\n";
  train_on("a.jsonl", lines);
  expect_parts(error_of([&] { open(); }), {"a.jsonl:2"});
  data_.bad_records = BadRecords::kSkip;
  OpenedData opened = open();
  EXPECT_EQ(opened.summary.bad_records, 3);
  EXPECT_EQ(labels_of(*opened.train), (Ints{0, 1}));
  data_.bad_records = BadRecords::kReplace;
  opened = open();
  EXPECT_EQ(labels_of(*opened.train), (Ints{0, 1, 1, 1, 1}));
  EXPECT_EQ(tokens_of(*opened.train, 4), (Ints{2, 7, 3, 0, 0, 0}));
  data_.max_bad_fraction = 0.5f;
  expect_parts(error_of([&] { open(); }), {"3 of 5", "a.jsonl:2"});
  data_.bad_records = BadRecords::kFail;
  train_on("a.csv", "text,label\na,0\nb,1,2\n");
  expect_parts(error_of([&] { open(); }), {"a.csv:3", "3 cells; allowed: 2"});
  train_on("a.csv", "text,label\na,0\nb,\n");
  expect_parts(error_of([&] { open(); }), {"a.csv:3", "label is empty"});
}

TEST_F(LabelledText, SaysWhatLooksWrong) {
  train_on("a.csv", "text,label\na,0\nb,0\n");
  OpenedData opened = open();
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"a.csv", "all 2 training samples have the class 0"});
  // A line of names that is taken for a text.
  config_.text = "0";
  config_.label = "1";
  train_on("a.csv", "text,label\na,0\nb,1\nc,1\n");
  opened = open();
  ASSERT_FALSE(opened.summary.warnings.empty());
  expect_parts(opened.summary.warnings[0], {"a.csv", "'label'", "by name"});
}

TEST_F(LabelledText, SpellingsOfAnAnswerAreOneClass) {
  train_on("a.csv", "text,label\na,True\nb,false\nc,TRUE\nd,False\ne,false\n");
  config_.eval = folder_.write("e.csv", "text,label\na,true\nb,FALSE\n");
  OpenedData opened = open();
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"false", "True"}));
  EXPECT_EQ(labels_of(*opened.train), (Ints{1, 0, 1, 0, 0}));
  EXPECT_EQ(labels_of(*opened.eval), (Ints{1, 0}));
  EXPECT_TRUE(opened.summary.warnings.empty());
  expect_parts(opened.summary.description, {"2 classes in 4 spellings"});
  // Numbers decide, and words are read as them.
  train_on("a.csv", "text,label\na,1\nb,0\n");
  EXPECT_EQ(labels_of(*open().eval), (Ints{1, 0}));
  // A list decides, too.
  config_.labels = {"yes", "no"};
  train_on("a.csv", "text,label\na,No\nb,YES\n");
  config_.eval = "";
  opened = open();
  EXPECT_EQ(opened.summary.class_names, config_.labels);
  EXPECT_EQ(labels_of(*opened.train), (Ints{1, 0}));
  config_.labels = {"yes", "no", "Yes"};
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage),
               {"data.labelled_text.labels", "'Yes'", "'yes' is the same class"});
  // Other names stay apart.
  config_.labels = {};
  train_on("a.csv", "text,label\na,Cat\nb,cat\nc,cat\n");
  opened = open();
  EXPECT_EQ(opened.summary.classes, 2);
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"'Cat' (1 of the samples) and 'cat' (2)"});
}

TEST_F(LabelledText, NamesAreComparedInOneForm) {
  const std::string composed = "\xC3\x9C", decomposed = "U\xCC\x88";
  train_on("a.csv", "text,label\na," + composed + "\nb,v\n");
  config_.eval = folder_.write("e.csv", "text,label\na," + decomposed + "\n");
  EXPECT_EQ(labels_of(*open().eval), Ints{1});
  config_.labels = {composed, "v", decomposed};
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage),
               {"U+0308", "(U+00DC) is the same class"});
}

TEST_F(LabelledText, RefusesWhatItCannotUse) {
  train_on("a.csv", "text,label\na,0\n");
  config_.text = "sentence";
  expect_parts(error_of([&] { open(); }), {"no column 'sentence'", "'text', 'label'", "0 to 1"});
  config_.text = "text";
  expect_parts(error_of([&] { open(config::TextTask::kNextToken); }, ExitCode::kUsage),
               {"data.labelled_text", "SEQUENCE_CLASSES"});
  config::ModelTraits images;
  images.section = "resnet";
  images.input = config::ModelInput::kImages;
  // Formats of texts are named for the tasks that take them.
  EXPECT_EQ(formats_for(encoder(config::TextTask::kNextToken, 8)),
            "data.text, data.tokens, data.synthetic or data.conversations");
  EXPECT_EQ(formats_for(encoder(config::TextTask::kTokenClasses, 8)),
            "data.synthetic or data.tagged_text");
  expect_parts(error_of([&] { open_data(data_, images, 1, true); }, ExitCode::kUsage),
               {"value is data.labelled_text", "data.image_folder"});
  expect_parts(error_of([&] { open(config::TextTask::kSequenceClass, 2); }, ExitCode::kUsage),
               {"model.bert.context", "above 2"});
  config::ModelTraits small = encoder(config::TextTask::kSequenceClass, 8);
  small.vocabulary = 14;
  expect_parts(error_of([&] { open_data(data_, small, 1, true); }, ExitCode::kUsage),
               {"model.bert.vocabulary", "at least 15"});
  small.vocabulary = 0;
  small.segments = 1;
  std::get<LabelledTextConfig>(data_.source).second_text = "other";
  expect_parts(error_of([&] { open_data(data_, small, 1, true); }, ExitCode::kUsage),
               {"model.bert.segments", "at least 2"});
  config_.tokenizer = "";
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage), {"data.labelled_text.tokenizer", "''"});
}

TEST_F(LabelledText, ColumnsAreDifferentOnes) {
  config_.train = "a.csv";
  const auto refused = [&](const std::string& text,
                           const std::string& second,
                           const std::vector<std::string>& parts) {
    config_.text = text;
    config_.second_text = second;
    data_.source = config_;
    expect_parts(error_of([&] { format_of(data_)->check(); }, ExitCode::kUsage), parts);
  };
  refused("label", "", {"data.labelled_text.text: value is 'label'", "data.labelled_text.label"});
  refused("text",
          "text",
          {"data.labelled_text.second_text: value is 'text'", "data.labelled_text.text"});
  refused("text",
          "label",
          {"data.labelled_text.second_text: value is 'label'", "data.labelled_text.label"});
}

TEST_F(LabelledText, NamesAndNumbersAreOfDifferentColumns) {
  train_on("a.csv", "text,label\na,0\nb,1\n");
  config_.text = "1";
  expect_parts(
      error_of([&] { open(); }),
      {"a.csv", "data.labelled_text.label 'label'", "data.labelled_text.text '1'", "column 1"});
  config_.text = "text";
  train_on("a.csv", "label,text,label\n0,a,1\n");
  expect_parts(error_of([&] { open(); }),
               {"a.csv", "columns 0 and 2 (from 0) of the header are both named 'label'"});
  // What nobody names may be there twice.
  train_on("a.csv", "n,n,text,label\n1,2,a,0\n1,2,b,1\n");
  EXPECT_EQ(open().train->samples(), 2);
}

TEST_F(LabelledText, SaysWhichLabelMakesNamesOfNumbers) {
  train_on("a.csv", "text,label\na,0\na,1\nb,10\nb,2\nc,n/a\nc,n/a\n");
  const OpenedData opened = open();
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"0", "1", "10", "2", "n/a"}));
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(
      opened.summary.warnings[0],
      {"a.csv:6", "'n/a'", "not a non-negative integer", "all 5 labels are taken as names"});
  train_on("a.csv", "text,label\na,0\na,x\n");  // no more numbers than names
  EXPECT_TRUE(open().summary.warnings.empty());
}

TEST_F(LabelledText, FilesAreUtf8) {
  train_on("a.csv", std::string("\xFF\xFEt\0", 4));
  expect_parts(error_of([&] { open(); }), {"a.csv: is UTF-16; allowed: UTF-8"});
}

TEST_F(LabelledText, TheTokenizerIsThatOfTheWeights) {
  const auto tokenizer = [](const auto& source, const std::string& weights, bool hidden = false) {
    using Source = std::decay_t<decltype(source)>;
    return std::get<Source>(source_with_tokenizer(source, weights, hidden)).tokenizer;
  };
  const std::string folder = folder_.path().string();  // it has a vocab.txt
  EXPECT_EQ(tokenizer(LabelledTextConfig{}, (folder_.path() / "weights.safetensors").string()), "");
  EXPECT_EQ(tokenizer(LabelledTextConfig{}, folder), folder);
  LabelledTextConfig named;
  named.tokenizer = "named";
  EXPECT_EQ(tokenizer(named, folder), "named");
  EXPECT_EQ(tokenizer(TokensConfig{}, folder, /*hidden=*/false), "");
  EXPECT_EQ(tokenizer(TokensConfig{}, folder, /*hidden=*/true), folder);
}

}  // namespace
}  // namespace lockstep::data

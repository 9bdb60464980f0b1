// Catches: answers that are exchanged or have tokens of the prompt as targets, a prompt that both
// texts begin with and that counts, the last token of a text that is not marked or is padding,
// records without a preference that train, texts that are truncated without a warning.
#include <gtest/gtest.h>

#include "runtime/data/format.h"
#include "runtime/data/text/text_samples.h"
#include "texts.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using Ints = std::vector<int32_t>;

constexpr int64_t kContext = 6;

class PreferencesTest : public ::testing::Test {
 protected:
  PreferencesTest() {
    data_.dir = folder_.path();
    config_.tokenizer = folder_.write("vocab.txt", test::kVocabulary);
  }

  static config::ModelTraits model(config::TextTask task) {
    config::ModelTraits traits = test::encoder(task, kContext);
    traits.section = "llama";
    traits.segments = 0;
    traits.outputs_field = "vocabulary";
    return traits;
  }
  OpenedData open(const std::string& text, config::TextTask task = config::TextTask::kAnswers) {
    config_.train = folder_.write("pairs.jsonl", text);
    data_.source = config_;
    return open_data(data_, model(task), 1, true);
  }
  std::string problem_of(const std::string& record) {
    return error_of([&] { open(record + "\n"); });
  }

  struct Answer {
    Ints tokens, targets, marked;  // without padding; marked: the places of segment 0
  };
  static std::vector<Answer> answers_of(const Dataset& dataset, bool rewards = false) {
    const auto sample = test::read<int32_t, int32_t>(dataset, {0});
    std::vector<Answer> answers(2);
    for (size_t k = 0; k < 2; ++k) {
      const int32_t* const rows = &sample.input[k * kTextRows * kContext];
      for (int64_t t = 0; t < kContext; ++t) {
        if (rows[kDocumentRow * kContext + t] < 0) continue;
        EXPECT_EQ(rows[kPositionRow * kContext + t], t);
        answers[k].tokens.push_back(rows[t]);
        if (rows[kSegmentRow * kContext + t] == 0)
          answers[k].marked.push_back(static_cast<int32_t>(t));
      }
      for (int64_t t = 0; t < kContext && !rewards; ++t)
        if (t < static_cast<int64_t>(answers[k].tokens.size()))
          answers[k].targets.push_back(sample.target[k * kContext + static_cast<size_t>(t)]);
        else
          EXPECT_EQ(sample.target[k * kContext + static_cast<size_t>(t)], -1);
    }
    return answers;
  }

  test::TemporaryFolder folder_;
  DataConfig data_;
  PreferencesConfig config_;
};

TEST_F(PreferencesTest, OnlyTokensOfAnswersAreTargets) {
  for (const char* record : {R"({"prompt": "a b", "chosen": " c", "rejected": " d e"})",
                             R"({"chosen": "a b c", "rejected": "a b d e"})"}) {
    const OpenedData opened = open(record);
    ASSERT_EQ(opened.train->samples(), 1);
    EXPECT_EQ(opened.train->length(0), 5);
    EXPECT_EQ(opened.train->tokens(0), 4 + 5);
    const auto answers = answers_of(*opened.train);
    EXPECT_EQ(answers[0].tokens, (Ints{2, 5, 6, 7}));  // [SEP], 3, is only a target
    EXPECT_EQ(answers[0].targets, (Ints{-1, -1, 7, 3}));
    EXPECT_EQ(answers[1].tokens, (Ints{2, 5, 6, 8, 9}));
    EXPECT_EQ(answers[1].targets, (Ints{-1, -1, 8, 9, 3}));
    EXPECT_EQ(opened.summary.classes, 15);
  }
}

TEST_F(PreferencesTest, RewardModelsHaveTheWholeTextAndAMarkOfItsLastToken) {
  const OpenedData opened = open(R"({"prompt": "a b", "chosen": " c", "rejected": " d e f g"})",
                                 config::TextTask::kRewards);
  const auto answers = answers_of(*opened.train, true);
  EXPECT_EQ(answers[0].tokens, (Ints{2, 5, 6, 7, 3}));
  EXPECT_EQ(answers[0].marked, (Ints{4}));
  EXPECT_EQ(answers[1].tokens, (Ints{2, 5, 6, 8, 9, 10}));
  EXPECT_EQ(answers[1].marked, (Ints{5}));
  EXPECT_EQ(opened.summary.vocabulary, 15);
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  expect_parts(opened.summary.warnings[0], {"1 of 1 pairs have a text that is longer"});
}

TEST_F(PreferencesTest, MessagesAreRenderedWithTheTemplate) {
  const std::string user = R"({"role": "user", "content": "c"})";
  const auto answer = [](const std::string& text) {
    return R"({"role": "assistant", "content": ")" + text + R"("})";
  };
  const std::string apart = R"({"prompt": [)" + user + R"(], "chosen": [)" + answer("d") +
                            R"(], "rejected": [)" + answer("e f") + "]}";
  const std::string together = R"({"chosen": [)" + user + ", " + answer("d") +
                               R"(], "rejected": [)" + user + ", " + answer("e f") + "]}";
  EXPECT_NE(problem_of(apart).find("set data.preferences.chat_template"), std::string::npos);
  config_.chat_template =
      folder_.write("chat.jinja",
                    "{% for m in messages %}{{ 'a' if m.role == 'user' else 'b' }} {{ m.content }} "
                    "{% endfor %}{% if add_generation_prompt %}b {% endif %}");
  for (const std::string& record : {apart, together}) {
    const auto answers = answers_of(*open(record).train);
    EXPECT_EQ(answers[0].tokens, (Ints{5, 7, 6})) << record;
    EXPECT_EQ(answers[0].targets, (Ints{-1, -1, 8})) << record;
    EXPECT_EQ(answers[1].targets, (Ints{-1, -1, 9, 10})) << record;
  }
}

TEST_F(PreferencesTest, RecordsWithoutAPreferenceAreBad) {
  expect_parts(problem_of(R"({"prompt": "a", "chosen": "b", "rejected": "b"})"),
               {"pairs.jsonl:1: its two answers are the same"});
  expect_parts(problem_of(R"({"prompt": "a", "chosen": " b", "rejected": " b "})"),
               {"pairs.jsonl:1: its two answers are the same"});
  expect_parts(problem_of(R"({"prompt": "a", "chosen": "b", "rejected": ""})"),
               {"pairs.jsonl:1: 'rejected' is empty"});
  expect_parts(problem_of(R"({"chosen": "a b", "rejected": "a"})"),
               {"'rejected' has no answer after what both texts begin with"});
  expect_parts(problem_of(R"({"prompt": "a", "chosen": "b"})"), {"has no 'rejected'"});
  expect_parts(problem_of(R"({"prompt": "a b c d e f g", "chosen": " h", "rejected": " a"})"),
               {"its chosen answer has no token within the first 7 tokens"});
  expect_parts(
      problem_of(R"({"prompt": "a", "chosen": " b c d e f g", "rejected": " b c d e f h"})"),
      {"its two answers differ only after the first 7 tokens"});
  expect_parts(problem_of("{"), {"pairs.jsonl:1: is not JSON"});
}

}  // namespace
}  // namespace lockstep::data

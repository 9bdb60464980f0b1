// Catches: BERT, RoBERTa or GPT-J with a tensor of another size than those of the models that
// people know, heads of another task, work that is counted wrong, fields that do not go together.
#include <gtest/gtest.h>

#include "models/registry.h"
#include "runtime/base/error.h"
#include "tests/reference/opened_models.h"

namespace lockstep::models {
namespace {

using Task = BertConfig::Task;

BertConfig bert_base(Task task, int64_t classes = 0) {
  BertConfig config;  // the defaults
  config.vocabulary = 30522;
  config.task = task;
  config.classes = classes;
  return config;
}

BertConfig bert_large() {
  BertConfig config = bert_base(Task::kMaskedTokens);
  config.layers = 24;
  config.heads = 16;
  config.width = 1024;
  config.mlp_width = 4096;
  return config;
}

BertConfig roberta_base(Task task, int64_t classes = 0) {
  BertConfig config = bert_base(task, classes);
  config.layout = BertConfig::Layout::kRoberta;
  config.vocabulary = 50265;
  config.segments = 1;
  return config;
}

GptConfig gpt_j_6b() {
  GptConfig config;
  config.layers = 28;
  config.heads = 16;
  config.width = 4096;
  config.context = 2048;
  config.vocabulary = 50400;
  config.positions = GptConfig::Positions::kRotary;
  config.rotary_size = 64;
  config.parallel_block = true;
  config.attention_bias = false;
  config.tied_head = false;
  config.head_bias = true;
  return config;
}

int64_t parameters_of(const ModelConfig& config) {
  const graph::Graph graph = build_model(config, {}, 1, graph::Purpose::kTraining);
  int64_t parameters = 0;
  for (const TensorId id : graph.parameters) parameters += graph.shape(id).elements();
  return parameters;
}

TEST(TextModels, HaveTheParametersOfTheModelsThatPeopleKnow) {
  EXPECT_EQ(parameters_of(bert_base(Task::kMaskedTokens)), 109'514'298);
  EXPECT_EQ(parameters_of(bert_base(Task::kSequenceClasses, 2)), 109'483'778);
  EXPECT_EQ(parameters_of(bert_base(Task::kTokenClasses, 9)), 108'898'569);
  BertConfig of_mean = bert_base(Task::kSequenceClasses, 2);
  of_mean.pooling = BertConfig::Pooling::kMean;
  EXPECT_EQ(parameters_of(of_mean), 108'891'648 + 2 * 768 + 2);
  EXPECT_EQ(parameters_of(bert_base(Task::kHiddenStates)), 108'891'648);
  EXPECT_EQ(parameters_of(bert_large()), 335'174'458);
  EXPECT_EQ(parameters_of(roberta_base(Task::kMaskedTokens)), 124'697'433);
  EXPECT_EQ(parameters_of(roberta_base(Task::kSequenceClasses, 2)), 124'647'170);
  EXPECT_EQ(parameters_of(gpt_j_6b()), 6'050'882'784);
}

// Six for each weight of a linear layer and token; of all pairs of tokens 12 widths in each block,
// of pairs that come before 6.
TEST(TextModels, WorkIsSixForEachWeightAndToken) {
  const double tokens = 512, layers = 84'934'656, dense = 768.0 * 768, head = 30522.0 * 768;
  EXPECT_DOUBLE_EQ(testing::flops_per_sample(bert_base(Task::kMaskedTokens), {}),
                   6 * tokens * (layers + dense + head) + 12 * tokens * tokens * 768 * 12);
  // What stands behind the first token is of one row.
  EXPECT_DOUBLE_EQ(testing::flops_per_sample(bert_base(Task::kSequenceClasses, 2), {}),
                   6 * tokens * layers + 6 * (dense + 2 * 768) + 12 * tokens * tokens * 768 * 12);
  const double embedding = 50400.0 * 4096, context = 2048;
  EXPECT_NEAR(testing::flops_per_sample(gpt_j_6b(), {}),
              6 * context * (6'050'882'784 - embedding + 28 * 4096 * context),
              1e6);
}

std::string refusal(const ModelConfig& config) {
  try {
    open_model(config)->check();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TextModels, RefuseFieldsThatDoNotGoTogether) {
  EXPECT_EQ(refusal(bert_base(Task::kMaskedTokens)), "");
  EXPECT_EQ(refusal(gpt_j_6b()), "");
  BertConfig bert = bert_base(Task::kSequenceValues);
  bert.label_smoothing = 0.5f;
  EXPECT_EQ(refusal(bert),
            "model.bert.label_smoothing: value is 0.5; allowed: 0; above 0 only with "
            "model.bert.task MASKED_TOKENS, SEQUENCE_CLASSES or TOKEN_CLASSES");
  bert = bert_base(Task::kMaskedTokens);
  bert.heads = 7;
  EXPECT_EQ(refusal(bert),
            "model.bert.heads: value is 7; allowed: a divisor of model.bert.width, which is 768");
  bert = roberta_base(Task::kMaskedTokens);
  bert.padding_token = 50265;
  EXPECT_EQ(refusal(bert),
            "model.bert.padding_token: value is 50265; allowed: a token below "
            "model.bert.vocabulary, which is 50265");
  GptConfig gpt = gpt_j_6b();
  gpt.tied_head = true;
  EXPECT_EQ(refusal(gpt),
            "model.gpt.head_bias: value is true; allowed: false, or true with model.gpt.tied_head "
            "false");
  gpt = gpt_j_6b();
  for (const int64_t size : {63, 258}) {
    gpt.rotary_size = size;
    EXPECT_NE(refusal(gpt).find("model.gpt.rotary_size: value is"), std::string::npos) << size;
  }
  gpt.positions = GptConfig::Positions::kLearned;
  gpt.rotary_size = 64;
  EXPECT_EQ(refusal(gpt),
            "model.gpt.rotary_size: value is 64; allowed: 0; above 0 only with "
            "model.gpt.positions ROTARY");
}

}  // namespace
}  // namespace lockstep::models

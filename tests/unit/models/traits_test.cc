// Catches: a family that is not in the registry's list, traits that tell the data and the commands
// something else than the model is.
#include <gtest/gtest.h>

#include <set>

#include "models/registry.h"
#include "tests/reference/opened_models.h"

namespace lockstep::models {
namespace {

TEST(Traits, EveryFamilyHasASectionOfItsOwn) {
  std::set<std::string> sections;
  for (const ModelConfig& model : all_models()) sections.insert(testing::traits_of(model).section);
  EXPECT_EQ(sections.size(), std::variant_size_v<ModelConfig>);
  EXPECT_EQ(testing::traits_of(ResnetConfig{}).section, "resnet");
}

TEST(Traits, FollowTheConfig) {
  MlpConfig mlp;
  mlp.loss = Loss::kMeanSquaredError;
  mlp.outputs = 3;
  config::ModelTraits traits = testing::traits_of(mlp);
  EXPECT_EQ(traits.input, config::ModelInput::kFeatures);
  EXPECT_FALSE(traits.has_accuracy());
  EXPECT_EQ(traits.outputs, 3);
  EXPECT_EQ(traits.field(traits.outputs_field), "model.mlp.outputs");

  GptConfig gpt;
  gpt.context = 7;
  gpt.vocabulary = 300;
  traits = testing::traits_of(gpt);
  EXPECT_EQ(traits.input, config::ModelInput::kTokens);
  EXPECT_EQ(traits.context, 7);
  EXPECT_EQ(traits.outputs, 300);
  EXPECT_EQ(traits.field(traits.outputs_field), "model.gpt.vocabulary");
  EXPECT_TRUE(traits.has_blocks);

  BertConfig bert;
  bert.vocabulary = 300;
  bert.context = 9;
  traits = testing::traits_of(bert);
  EXPECT_EQ(traits.text_task, config::TextTask::kMaskedTokens);
  EXPECT_EQ(traits.segments, 2);
  EXPECT_EQ(traits.context, 9);
  EXPECT_EQ(traits.outputs, 300);
  EXPECT_EQ(traits.field(traits.outputs_field), "model.bert.vocabulary");
  bert.task = BertConfig::Task::kSequenceValues;
  bert.classes = 2;
  traits = testing::traits_of(bert);
  EXPECT_EQ(traits.text_task, config::TextTask::kSequenceValues);
  EXPECT_FALSE(traits.has_accuracy());
  EXPECT_EQ(traits.vocabulary, 300);
  EXPECT_EQ(traits.outputs, 2);
  EXPECT_EQ(traits.field(traits.outputs_field), "model.bert.classes");

  VggConfig vgg;
  vgg.classes = 12;
  traits = testing::traits_of(vgg);
  EXPECT_TRUE(traits.wants_images());
  EXPECT_EQ(traits.outputs, 12);
  EXPECT_EQ(traits.field(traits.outputs_field), "model.vgg.classes");
  EXPECT_EQ(traits.vocabulary_tensor, nullptr);
}

TEST(Traits, OfACheckpointAreKnownByItsTensors) {
  const auto known = [](const std::string& tensor) {
    return traits_by_tensors([&](const std::string& name) { return name == tensor; });
  };
  ASSERT_TRUE(known("layer1.0.conv1.weight"));
  EXPECT_EQ(known("layer1.0.conv1.weight")->section, "resnet");
  EXPECT_FALSE(known("layers.0.weight"));
}

// The vocabulary's tensor is one that the model has, with a row for each token.
TEST(Traits, TheVocabularysTensorHasItsRows) {
  GptConfig gpt;
  gpt.layers = 1;
  gpt.vocabulary = 31;
  const graph::Graph graph = build_model(gpt, {}, 1, graph::Purpose::kInference);
  int64_t rows = 0;
  for (const TensorId id : graph.parameters) {
    if (graph[id].name == testing::traits_of(gpt).vocabulary_tensor) rows = graph.shape(id)[0];
  }
  EXPECT_EQ(rows, 31);
}

}  // namespace
}  // namespace lockstep::models

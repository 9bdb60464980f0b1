// Catches: a model for weights from elsewhere that is built with other inputs, classes or images
// than they were trained with.
#include <gtest/gtest.h>

#include <map>

#include "models/registry.h"

namespace lockstep::models {
namespace {

using Extents = std::map<std::string, std::vector<int64_t>>;

ModelIo io_for(const ModelConfig& model, const Extents& tensors) {
  return open_model(model)->io_of_weights(
      [&](const std::string& name) -> std::optional<std::vector<int64_t>> {
        const auto at = tensors.find(name);
        return at == tensors.end() ? std::nullopt : std::optional(at->second);
      });
}

TEST(IoOfWeights, ReadsInputsAndClasses) {
  MlpConfig mlp;
  mlp.hidden = {8};
  ModelIo io = io_for(mlp, {{"layers.0.weight", {8, 30}}, {"layers.1.weight", {4, 8}}});
  EXPECT_EQ(io.features, 30);
  EXPECT_EQ(io.classes, 4);
  mlp.loss = Loss::kMeanSquaredError;
  io = io_for(mlp, {{"layers.0.weight", {8, 30}}, {"layers.1.weight", {4, 8}}});
  EXPECT_EQ(io.target_columns, 4);
  EXPECT_EQ(io_for(GptConfig{}, {{"transformer.wte.weight", {300, 768}}}).classes, 300);
  EXPECT_EQ(io_for(LlamaConfig{}, {{"model.embed_tokens.weight", {320, 576}}}).classes, 320);
  io = io_for(BertConfig{}, {{"bert.embeddings.word_embeddings.weight", {330, 768}}});
  EXPECT_EQ(io.classes, 330);
  EXPECT_EQ(io.vocabulary, 330);
  BertConfig roberta;
  roberta.layout = BertConfig::Layout::kRoberta;
  roberta.task = BertConfig::Task::kSequenceClasses;
  const Extents of_roberta = {{"roberta.embeddings.word_embeddings.weight", {331, 768}},
                              {"classifier.out_proj.weight", {6, 768}},
                              {"classifier.weight", {9, 768}}};
  io = io_for(roberta, of_roberta);
  EXPECT_EQ(io.vocabulary, 331);
  EXPECT_EQ(io.classes, 6);
  roberta.task = BertConfig::Task::kSequenceValues;
  EXPECT_EQ(io_for(roberta, of_roberta).target_columns, 6);
  roberta.pooling = BertConfig::Pooling::kMean;
  EXPECT_EQ(io_for(roberta, of_roberta).target_columns, 9);
  roberta.task = BertConfig::Task::kTokenClasses;
  EXPECT_EQ(io_for(roberta, of_roberta).classes, 9);
  io = io_for(ResnetConfig{}, {{"conv1.weight", {64, 1, 7, 7}}, {"fc.bias", {12}}});
  EXPECT_EQ(io.channels, 1);
  EXPECT_EQ(io.classes, 12);
}

TEST(IoOfWeights, FindsTheSizeOfTheImages) {
  EXPECT_EQ(io_for(VggConfig{}, {{"classifier.0.weight", {4096, 25088}}}).height, 224);
  EXPECT_EQ(io_for(LenetConfig{}, {{"fc1.weight", {120, 400}}}).height, 32);
  EXPECT_EQ(io_for(LenetConfig{}, {{"fc1.weight", {120, 16 * 53 * 53}}}).height, 224);
  const ModelIo io = io_for(DitConfig{},
                            {{"pos_embed", {12, 10, 384}},
                             {"x_embedder.proj.weight", {384, 1, 2, 2}},
                             {"y_embedder.embedding_table.weight", {8, 384}}});
  EXPECT_EQ(io.height, 24);
  EXPECT_EQ(io.width, 20);
  EXPECT_EQ(io.channels, 1);
  EXPECT_EQ(io.classes, 7);
  EXPECT_EQ(io_for(VitConfig{}, {{"vit.embeddings.position_embeddings", {26, 768}}}).height, 80);
}

}  // namespace
}  // namespace lockstep::models

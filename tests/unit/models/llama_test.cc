// Catches: a tensor of another size than those of the models that people know, work that is counted
// wrong.
#include <gtest/gtest.h>

#include "models/registry.h"
#include "tests/reference/opened_models.h"

namespace lockstep::models {
namespace {

LlamaConfig smollm_135m() {
  LlamaConfig config;  // the defaults
  config.vocabulary = 49152;
  return config;
}

LlamaConfig llama_3_2_1b() {
  LlamaConfig config;
  config.layers = 16;
  config.heads = 32;
  config.kv_heads = 8;
  config.width = 2048;
  config.mlp_width = 8192;
  config.vocabulary = 128256;
  return config;
}

LlamaConfig llama_3_8b() {
  LlamaConfig config = llama_3_2_1b();
  config.layers = 32;
  config.width = 4096;
  config.mlp_width = 14336;
  config.tied_head = false;
  return config;
}

LlamaConfig qwen2_0_5b() {
  LlamaConfig config;
  config.layers = 24;
  config.heads = 14;
  config.kv_heads = 2;
  config.width = 896;
  config.mlp_width = 4864;
  config.vocabulary = 151936;
  config.qkv_bias = true;
  return config;
}

LlamaConfig qwen3_0_6b() {
  LlamaConfig config;
  config.layers = 28;
  config.heads = 16;
  config.kv_heads = 8;
  config.head_size = 128;
  config.width = 1024;
  config.mlp_width = 3072;
  config.vocabulary = 151936;
  config.qk_norm = true;
  return config;
}

int64_t parameters_of(const LlamaConfig& config) {
  const graph::Graph graph = build_model(config, {}, 1, graph::Purpose::kTraining);
  int64_t parameters = 0;
  for (const TensorId id : graph.parameters) parameters += graph.shape(id).elements();
  return parameters;
}

TEST(Llama, HasTheParametersOfTheModelsThatPeopleKnow) {
  EXPECT_EQ(parameters_of(smollm_135m()), 134'515'008);
  EXPECT_EQ(parameters_of(llama_3_2_1b()), 1'235'814'400);
  EXPECT_EQ(parameters_of(llama_3_8b()), 8'030'261'248);
  EXPECT_EQ(parameters_of(qwen2_0_5b()), 494'032'768);
  EXPECT_EQ(parameters_of(qwen3_0_6b()), 596'049'920);
}

// Each parameter but the input embedding is multiplied once a token; beside it attention's half of
// all pairs of tokens.
TEST(Llama, WorkIsSixForEachWeightAndToken) {
  const LlamaConfig config = llama_3_8b();
  const double embedding = 128256.0 * 4096, tokens = 2048;
  const double weights = 8'030'261'248 - embedding, pairs = 32 * 4096 * tokens;
  EXPECT_NEAR(testing::flops_per_sample(config, {}), tokens * 6 * (weights + pairs), 1e9);
}

}  // namespace
}  // namespace lockstep::models

#pragma once
// Small models that several tests plan and run.

#include "models/registry.h"

namespace lockstep::testing {

inline MlpConfig small_mlp() {
  MlpConfig config;
  config.hidden = {24, 12};
  config.activation = Activation::kGeluTanh;
  config.dropout = 0.25f;
  config.outputs = 5;
  return config;
}

inline models::ModelIo small_mlp_io() {
  return {.features = 18, .classes = 5, .target_columns = 0};
}

inline GptConfig small_gpt() {
  GptConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 16;
  config.context = 12;
  config.vocabulary = 29;
  return config;
}

// Heads that are wider than their share of the width, in groups of two.
inline LlamaConfig small_llama() {
  LlamaConfig config;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 6;
  config.width = 16;
  config.mlp_width = 20;
  config.context = 12;
  config.vocabulary = 29;
  return config;
}

// With so many segments and places that any number below 29 may stand in any row of a sample.
inline BertConfig small_bert(BertConfig::Task task = BertConfig::Task::kMaskedTokens) {
  BertConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 16;
  config.mlp_width = 20;
  config.context = 29;
  config.vocabulary = 29;
  config.segments = 29;
  config.task = task;
  const bool of_classes =
      task == BertConfig::Task::kSequenceClasses || task == BertConfig::Task::kTokenClasses;
  config.classes = of_classes ? 29 : task == BertConfig::Task::kSequenceValues ? 3 : 0;
  return config;
}

// GPT-J: a part of each head turns, and attention and MLP read the same norm.
inline GptConfig small_gptj() {
  GptConfig config = small_gpt();
  config.positions = GptConfig::Positions::kRotary;
  config.rotary_size = 6;
  config.parallel_block = true;
  config.attention_bias = false;
  config.head_bias = true;
  config.tied_head = false;
  config.mlp_width = 20;
  config.norm_epsilon = 1e-3f;
  return config;
}

// Images for the networks below; larger ones cost the tests their time.
inline models::ModelIo small_image_io() {
  return {.classes = 7,
          .height = 32,
          .width = 32,
          .channels = 3,
          .mean = {0.5f, 0.4f, 0.3f},
          .std = {0.25f, 0.3f, 0.35f}};
}

inline ResnetConfig small_resnet() {
  ResnetConfig config;
  config.depth = 20;
  config.classes = 7;
  return config;
}

}  // namespace lockstep::testing

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

inline ModelIo small_mlp_io() { return {.features = 18, .classes = 5, .target_columns = 0}; }

inline GptConfig small_gpt() {
  GptConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 16;
  config.context = 12;
  config.vocabulary = 29;
  return config;
}

}  // namespace lockstep::testing

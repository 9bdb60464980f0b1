#pragma once
// From the config's model section to a graph.

#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"

namespace lockstep {

// What the data says about the model's ends.
struct ModelIo {
  int64_t features = 0;        // inputs of an MLP
  int64_t classes = 0;         // labels, or vocabulary; 0 where targets are values
  int64_t target_columns = 0;  // values to predict; 0 where targets are labels
  // Of images, 0 and empty where inputs are something else.
  int64_t height = 0, width = 0, channels = 0;
  std::vector<float> mean = {}, std = {};  // (channels) each, of pixels in [0, 1]
};

// The name of its section in the config: "mlp", "resnet".
const char* model_section(const ModelConfig& model);

// The config with what it leaves to the data filled in (outputs, vocabulary). Throws ConfigError
// where both are given and do not agree.
ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io);

// Builds the graph of one lane of `lane_batch` samples; a training graph is differentiated. `model`
// must be resolved. `tokens` shortens the sequences of a language model below its context; 0: the
// whole context.
Graph build_model(const ModelConfig& model,
                  const ModelIo& io,
                  int64_t lane_batch,
                  const GraphOptions& options,
                  int64_t tokens = 0);

// Floating-point operations of one sample's forward and backward pass, as MFU counts them: 6 per
// parameter that multiplies each token or sample and, for causal attention, 6 * layers * width *
// context per token; for images three times the forward pass of convolutions and linear layers.
double model_flops_per_sample(const ModelConfig& model, const ModelIo& io);

}  // namespace lockstep

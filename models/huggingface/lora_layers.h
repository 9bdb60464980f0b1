#pragma once
// Which linear layers have a LoRA. They are matched by Hugging Face's names (modules). One linear
// layer of the model may consist of several modules.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/state.h"
#include "runtime/config/pattern.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"

namespace lockstep::huggingface {

// A linear layer in Hugging Face's names, and which outputs of the model's layer are its outputs.
struct LoraModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  graph::OutputRows outputs;
};

// The modules of the layer with this weight of `rows` rows, in the order of its outputs. If Hugging
// Face has no such model, the layer itself.
std::vector<LoraModule> modules_of(const ModelConfig& model,
                                   const std::string& weight,
                                   int64_t rows);
// The same, but only the modules whose names match the pattern.
std::vector<LoraModule> matching_modules(const ModelConfig& model,
                                         const std::string& weight,
                                         int64_t rows,
                                         const config::Pattern& pattern);

// The graph option for the config's LoRA; empty without adapter.lora. Layers that train in full
// (adapter.lora.train_also) have no LoRA. Throws ConfigError.
graph::LoraLayers lora_layers(const RunConfig& config);

// Freezes all parameters of a training graph except the LoRA and adapter.lora.train_also. Throws
// ConfigError if no layer or no parameter matches, or if an embedding has a LoRA.
void freeze_base(const RunConfig& config, graph::Graph& graph);

// adapter.lora.train_also, extended by the parameters of new heads. A head is new if
// train.init_from, a Hugging Face folder or a file, lacks it or has it for another number of
// classes. If the run resumes from `checkpoint` (may be null), the heads that trained there are
// new, and init_from is not read.
std::string train_also_with_new_heads(const RunConfig& config,
                                      const graph::Graph& graph,
                                      const checkpoint::CheckpointState* checkpoint);

// The slices, without those of LoRA matrices.
std::vector<checkpoint::NamedSlice> base_slices(const std::vector<checkpoint::NamedSlice>& slices);

// Adds the products of the LoRA matrices among `slices` to the weights of their layers. Throws
// CheckpointError if their rank or layers are not those of the config.
void merge_lora(const RunConfig& config,
                const std::vector<checkpoint::NamedSlice>& slices,
                float* flat);

// Like read_model(), or like read_average() for the moving average, but adds the checkpoint's LoRA,
// if the config has one, to the weights. `slices` are those of the model without the LoRA.
void read_merged(const std::filesystem::path& folder,
                 const checkpoint::CheckpointState& state,
                 const RunConfig& config,
                 const std::vector<checkpoint::NamedSlice>& slices,
                 float* flat,
                 bool average = false);

}  // namespace lockstep::huggingface

#pragma once
// Which linear layers have a LoRA: Hugging Face's names of them, of which several may be one layer here.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint/state.h"
#include "runtime/config/pattern.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"

namespace lockstep::huggingface {

// A layer of Hugging Face's, and where its outputs are among those of the layer here.
struct LoraModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  OutputRows outputs;
};

// Those of the layer whose weight is so called here and has so many rows, in order. Of models that
// Hugging Face has nothing like, the layer itself.
std::vector<LoraModule> modules_of(const ModelConfig& model,
                                   const std::string& weight,
                                   int64_t rows);
// The same of those in whose names the pattern is found.
std::vector<LoraModule> matching_modules(const ModelConfig& model,
                                         const std::string& weight,
                                         int64_t rows,
                                         const Pattern& pattern);

// What a graph is told of the LoRA that the config has: nothing without one. Layers whose weights train
// as a whole, by adapter.lora.train_also, have none. Throws ConfigError.
LoraLayers lora_layers(const RunConfig& config);

// Says of a training graph with lora_layers() that all but the LoRA and what trains beside it is frozen.
// Throws ConfigError where no layer or no parameter matches, and where an embedding does.
void freeze_base(const RunConfig& config, Graph& graph);

// adapter.lora.train_also with the parameters of the graph that are a head and new: that train.init_from,
// a folder of Hugging Face or a file, lacks or has of another number of classes. Of a run that goes on
// from `checkpoint` (null: from none), those that trained there, and init_from is not looked at.
std::string train_also_with_new_heads(const RunConfig& config,
                                      const Graph& graph,
                                      const CheckpointState* checkpoint);

// The slices without those of a LoRA.
std::vector<NamedSlice> base_slices(const std::vector<NamedSlice>& slices);

// Adds what the LoRA among the slices learned to the weights of their layers. Refuses one of another
// rank or other layers than the config's (CheckpointError).
void merge_lora(const RunConfig& config, const std::vector<NamedSlice>& slices, float* flat);

// As read_model() or, of the moving average, read_average(), of a checkpoint whose LoRA, where the config
// has one, is added to the weights; `slices` are those of the model without it.
void read_merged(const std::filesystem::path& folder,
                 const CheckpointState& state,
                 const RunConfig& config,
                 const std::vector<NamedSlice>& slices,
                 float* flat,
                 bool average = false);

}  // namespace lockstep::huggingface

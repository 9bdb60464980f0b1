#pragma once
// LoRAs in the folders that PEFT's save_pretrained writes and PeftModel.from_pretrained reads:
// adapter_config.json and adapter_model.safetensors. Errors are ConfigError (in the json),
// CheckpointError (in the tensors) or IoError.

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Fills the LoRA of `config` in `flat` (fp32, at the offsets of `slices`), bit for bit, and the
// other trained parameters that the folder has. Rejects a folder with another rank, alpha or other
// layers, unsupported kinds of LoRA, parameters that adapter.lora.train_also does not match, and an
// embedding that is also the output matrix. Returns a sentence for the log if prefixes of names
// were left out, otherwise an empty text.
std::string read_peft(const std::filesystem::path& folder,
                      const RunConfig& config,
                      const std::vector<checkpoint::NamedSlice>& slices,
                      float* flat);

// Creates the folder `out`, which appears complete or not at all, and must not exist. Parameters
// that are trained besides the LoRA are written as modules_to_save. Rejects those that PEFT cannot
// read back. `add_files` writes further files into the folder.
checkpoint::WrittenFile write_peft(
    const std::filesystem::path& out,
    const RunConfig& config,
    const std::vector<checkpoint::NamedSlice>& slices,
    const float* flat,
    bool is_causal_lm,
    const std::map<std::string, std::string>& metadata,
    const std::function<void(const std::filesystem::path&)>& add_files);

// Warnings if the base model that the folder names, train.init_from, is not the model that the LoRA
// was trained on: it is not a Hugging Face folder, or fields of its config.json differ.
std::vector<std::string> notes_of_base(const RunConfig& config);

inline constexpr const char* kAdapterConfig = "adapter_config.json";

// Throws ConfigError if the folder's LoRA has another rank or alpha than `lora`, or is of an
// unsupported kind: with other ranks for some layers, with biases or magnitudes, or with an
// initialisation that changes the base weights.
void check_peft_config(const std::filesystem::path& folder, const LoraConfig& lora);

struct PeftModules {
  std::set<std::string> targets;  // have a LoRA
  std::set<std::string> saved;    // train beside it
  bool transposed = false;        // whether weights of targets are stored as (inputs, outputs)
};

// `task` is PEFT's task_type; empty: none. `base` is the path or name of the base model.
Json make_peft_config(const LoraConfig& lora,
                      const PeftModules& modules,
                      const std::string& base,
                      const std::string& task);

}  // namespace lockstep::huggingface

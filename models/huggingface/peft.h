#pragma once
// LoRAs in folders as PEFT's save_pretrained writes them and PeftModel.from_pretrained reads them:
// adapter_config.json and adapter_model.safetensors. Errors are ConfigError (of the json),
// CheckpointError (of the tensors) or IoError.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Fills the LoRA of `config` that `slices` name in `flat` (fp32, at the slices' offsets), bit for bit,
// and those parameters beside it that the folder has. Refuses a folder of another rank, alpha or
// layers, kinds of LoRA that are not here, parameters beside it that adapter.lora.train_also lets rest,
// and an embedding beside it that is the output matrix, too.
void read_peft(const std::filesystem::path& folder,
               const RunConfig& config,
               const std::vector<NamedSlice>& slices,
               float* flat);

// Makes the folder `out`, which appears whole or not at all; refuses one that exists. What trained
// beside the LoRA is written as modules_to_save; refuses what PEFT would not take so.
WrittenFile write_peft(const std::filesystem::path& out,
                       const RunConfig& config,
                       const std::vector<NamedSlice>& slices,
                       const float* flat,
                       bool is_causal_lm,
                       const std::map<std::string, std::string>& metadata);

// Where the base that such a folder names, train.init_from, is not what the LoRA was trained on: it
// is no folder of Hugging Face, or fields of its config.json differ. A line each.
std::vector<std::string> notes_of_base(const RunConfig& config);

}  // namespace lockstep::huggingface

#pragma once
// LoRAs in the folders that PEFT's save_pretrained writes and PeftModel.from_pretrained reads:
// adapter_config.json and adapter_model.safetensors. Errors are ConfigError (in the json),
// CheckpointError (in the tensors) or IoError.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

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
// read back.
checkpoint::WrittenFile write_peft(const std::filesystem::path& out,
                                   const RunConfig& config,
                                   const std::vector<checkpoint::NamedSlice>& slices,
                                   const float* flat,
                                   bool is_causal_lm,
                                   const std::map<std::string, std::string>& metadata);

// Warnings if the base model that the folder names, train.init_from, is not the model that the LoRA
// was trained on: it is not a Hugging Face folder, or fields of its config.json differ.
std::vector<std::string> notes_of_base(const RunConfig& config);

}  // namespace lockstep::huggingface

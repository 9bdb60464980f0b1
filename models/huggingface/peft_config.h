#pragma once
// adapter_config.json, which says how the tensors of a LoRA in a folder of PEFT are to be taken.

#include <filesystem>
#include <set>
#include <string>

#include "runtime/base/json.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

inline constexpr const char* kAdapterConfig = "adapter_config.json";

// Refuses a folder whose LoRA is of another rank or alpha than `lora`, or of a kind that is not here:
// with other ranks for some layers, with biases or magnitudes, or on top of weights that PEFT
// changes first. Throws ConfigError.
void check_peft_config(const std::filesystem::path& folder, const LoraConfig& lora);

struct PeftModules {
  std::set<std::string> targets;  // have a LoRA
  std::set<std::string> saved;    // train beside it
  bool transposed = false;        // whether weights of targets are stored as (inputs, outputs)
};

// `task` is PEFT's task_type; empty: none. `base` names the model that the LoRA is of.
Json make_peft_config(const LoraConfig& lora,
                      const PeftModules& modules,
                      const std::string& base,
                      const std::string& task);

}  // namespace lockstep::huggingface

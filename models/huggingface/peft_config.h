#pragma once
// adapter_config.json of a PEFT folder, which describes its LoRA.

#include <filesystem>
#include <set>
#include <string>

#include "runtime/base/json.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

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

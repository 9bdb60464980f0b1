#pragma once
// The fields of config.json that GPT-2 and GPT-J have in common.

#include <string>
#include <vector>

#include "models/huggingface/config_fields.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Reads these fields into `gpt`, which has the family's defaults; `dropout` is the default of the
// dropout fields. Throws ConfigError for unsupported values.
void read_gpt(ConfigFields& fields, double dropout, GptConfig& gpt);

// Like Family::write. `type` is the model_type, `architecture` the class of transformers that reads
// the folder.
void write_gpt(const GptConfig& gpt, const char* type, const char* architecture, Json& config);

}  // namespace lockstep::huggingface

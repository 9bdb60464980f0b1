#pragma once
// The fields of config.json that GPT-2 and GPT-J have in common.

#include <string>
#include <vector>

#include "models/huggingface/config_fields.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

// Reads them into `gpt`, which has the family's defaults; `dropout` is that of a missing field.
// Throws ConfigError for values that the model here does not have.
void read_gpt(ConfigFields& fields, double dropout, GptConfig& gpt);

// As Family::write. `type` is the model_type, `architecture` the class that reads such a folder.
void write_gpt(const GptConfig& gpt, const char* type, const char* architecture, Json& config);

}  // namespace lockstep::huggingface

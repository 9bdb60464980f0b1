#pragma once
// The head of a decoder in a config.json: that of tokens, or of one label, whose matrix is
// kScoreWeight.

#include <string>

#include "models/huggingface/config_fields.h"
#include "runtime/config/run_config.h"

namespace lockstep::huggingface {

inline constexpr char kScoreWeight[] = "score.weight";  // (1, C)

// kReward for a network like LlamaForSequenceClassification with one label.
DecoderHead read_head(ConfigFields& fields);

// Writes the architecture, and the label of a reward model. `of_tokens`: the architecture with the
// head of tokens, such as "LlamaForCausalLM".
void write_head(DecoderHead head, const std::string& of_tokens, Json& config);

}  // namespace lockstep::huggingface

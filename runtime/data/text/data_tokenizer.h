#pragma once
// The tokenizer that a section of the config's data names.

#include <memory>
#include <optional>
#include <string>

#include "runtime/config/run_config.h"
#include "runtime/data/assumed.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {

// Where the source has a tokenizer that is left open, and train.init_from, or model.from before it,
// names a folder with one: makes it that folder. Of data.tokens only for a model of hidden tokens.
void use_tokenizer_of_weights(bool hidden_tokens, RunConfig* config);

// Opens it: `path` lies below data.dir or, where it is not there, is as it stands. Throws ConfigError,
// which names `field`, where it is empty, and DataError.
std::unique_ptr<const Tokenizer> open_data_tokenizer(const DataConfig& data,
                                                     const std::string& path,
                                                     const std::string& field);

// For a plan without data: how many tokens there are, as the model or a tokenizer that is here says.
// Refuses what nobody says.
int64_t assumed_vocabulary(const DataConfig& data,
                           const std::string& path,
                           const MissingFile& missing);

}  // namespace lockstep

#pragma once
// The tokenizer that the data section of the config names.

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/config/run_config.h"
#include "runtime/data/placeholder.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::data {

// `path` relative to data.dir if it exists there, otherwise `path` itself.
std::filesystem::path path_in_data(const DataConfig& data, const std::string& path);

// The source of a data section. If it has a tokenizer field that is empty, and the folder `weights`
// (train.init_from) has a tokenizer, the field is that folder. For data.tokens only if the model
// predicts `hidden_tokens`.
decltype(DataConfig::source) source_with_tokenizer(decltype(DataConfig::source) source,
                                                   const std::string& weights,
                                                   bool hidden_tokens);

// Opens the tokenizer at `path`, relative to data.dir if it exists there. Throws ConfigError, which
// names `field`, if the path is empty, and DataError.
std::unique_ptr<const tokenizer::Tokenizer> open_data_tokenizer(const DataConfig& data,
                                                                const std::string& path,
                                                                const std::string& field);

// The vocabulary for a plan without data: the model's, otherwise that of the tokenizer, if it
// exists. Throws DataError if neither is known.
int64_t placeholder_vocabulary(const DataConfig& data,
                               const std::string& path,
                               const MissingFile& missing);

}  // namespace lockstep::data

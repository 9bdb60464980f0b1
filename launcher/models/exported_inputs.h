#pragma once
// How the inputs of an exported network are made and what its outputs mean: found once, and written
// as metadata or as files, with the field names of Hugging Face.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/tokenizer_files.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/config/preprocessing.h"
#include "runtime/run/open_config.h"

namespace lockstep::launcher {

struct ExportedInputs {
  // For images, tables and numbers. None: the network takes tokens, or it is unknown.
  std::optional<config::Preprocessing> preprocessing = {};
  Json preprocessor = Json::object();  // preprocessor_config.json
  Json model = Json::object();         // config.json: id2label, label2id, function_to_apply, ...
  std::vector<std::string> class_names = {};
  std::vector<TokenizerFile> tokenizer = {};
  std::string description = {};  // for the log; empty: unknown
  std::string unknown = {};      // why
};

// `origin` names the checkpoint in messages. Throws CheckpointError.
ExportedInputs exported_inputs(const run::OpenedConfig& opened,
                               const checkpoint::CheckpointState& state,
                               const std::string& origin);

// Changes the fields to those of a network that makes its inputs itself. Returns what it takes, for
// line_of(): "in its graph, which takes pixels (N, 28, 28, 1) uint8". Throws ConfigError if it
// cannot make them.
std::string put_into_network(const config::ModelTraits& model, ExportedInputs& inputs);

// Each field of the files by its name, as JSON, and each file of the tokenizer by its name. Warns
// of those that cannot be metadata, because they are too large or not texts.
std::map<std::string, std::string> metadata_of(const ExportedInputs& inputs);

// Writes the files that are not empty into `folder`. Returns their names.
std::vector<std::string> write_files(const ExportedInputs& inputs,
                                     const std::filesystem::path& folder);

// "OUT: preprocessing in its metadata: pixels / 255, mean 0.5, std 0.5, 28 x 28, 10 classes".
// `where`: "in its metadata".
std::string line_of(const ExportedInputs& inputs, const std::string& out, const std::string& where);

}  // namespace lockstep::launcher

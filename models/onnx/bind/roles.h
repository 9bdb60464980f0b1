#pragma once
// The role of each initializer in training, for the log and for `lockstep inspect`.

#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep::onnx {

struct InitializerRole {
  enum class Kind : uint8_t {
    kLearns,
    kStatistic,  // a running statistic of a norm
    kConstant,
    kNoGradient,  // a parameter that no gradient of the losses reaches
  };
  std::string name;
  Kind kind = Kind::kConstant;
  Source source = Source::kRule;
  bool numbers = false;                   // whether it is floating-point
  std::vector<std::string> made_of = {};  // see FileValue
};

// "learns", "statistic", "constant", "no gradient".
const char* name_of(InitializerRole::Kind kind);
// "rule", "file", "config".
const char* name_of(Source source);

struct FileRoles {
  bool declares = false;  // whether the file declares its parameters
  bool declared = false;  // whether these declarations are used
  // Initializers in the file's order, then the Constant nodes that learn.
  std::vector<InitializerRole> initializers = {};
  std::vector<FoldedNorm> folded_norms = {};
  std::vector<std::string> dropped_parameters = {};  // see File
};

// `graph` is that of the config's network, for training or evaluation.
FileRoles roles_of(const OnnxConfig& config, const graph::Graph& graph);

// Lines for the log: one for each kind, with the number of initializers and some of their names.
std::vector<std::string> lines_of(const FileRoles& roles);

// Warnings about changes by the exporter that affect training: folded norms, and parameters that it
// computed into other values or dropped.
std::vector<std::string> warnings_of(const FileRoles& roles);

}  // namespace lockstep::onnx

#pragma once
// What training does with each initializer of a file, for the log and for `lockstep inspect`.

#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep::onnx {

struct InitializerRole {
  enum class Kind : uint8_t {
    kLearns,
    kStatistic,  // follows the batches, as a running mean
    kConstant,
    kNoGradient,  // would learn, but no gradient of the losses reaches it
  };
  std::string name;
  Kind kind = Kind::kConstant;
  Source source = Source::kRule;
  bool numbers = false;                   // floating-point ones
  std::vector<std::string> made_of = {};  // see FileValue
};

// "learns", "statistic", "constant", "no gradient".
const char* name_of(InitializerRole::Kind kind);
// "rule", "file", "config".
const char* name_of(Source source);

struct FileRoles {
  bool declares = false;  // the file does
  bool declared = false;  // and what learns is what it declares
  // In the file's order, and behind them Constant nodes that learn.
  std::vector<InitializerRole> initializers = {};
  std::vector<FoldedNorm> folded_norms = {};
  std::vector<std::string> dropped_parameters = {};  // see File
};

// `graph`: of the config's network, for training or evaluation.
FileRoles roles_of(const OnnxConfig& config, const Graph& graph);

// What learns and what does not by name, some of them: a line for each kind.
std::vector<std::string> lines_of(const FileRoles& roles);

// What the exporter has done to the network that changes how it is trained: norms that the file has no more,
// parameters that were computed into others or left out.
std::vector<std::string> warnings_of(const FileRoles& roles);

}  // namespace lockstep::onnx

#pragma once
// Writes a network's ONNX file with trained weights.

#include <functional>
#include <map>
#include <string>

#include "runtime/config/preprocessing.h"
#include "runtime/config/run_config.h"

namespace lockstep::onnx {

// Returns the elements of a parameter by its name, in the graph's layout. Throws if there is none.
using TrainedElements = std::function<const float*(const std::string& name)>;

struct TrainedFileOptions {
  std::map<std::string, std::string> metadata = {};  // see Additions
  // Put into the graph, if not null: see add_preprocessing_nodes().
  const config::Preprocessing* preprocessing = nullptr;
};

// Writes the config's file to `path` with these elements in its initializers, including running
// statistics of norms; with its own if `elements` is null. Everything else stays, and so do the
// types. Throws ConfigError and IoError, and leaves no unfinished file.
void write_trained(const OnnxConfig& config,
                   const std::string& path,
                   const TrainedElements& elements,
                   const TrainedFileOptions& options = {});

}  // namespace lockstep::onnx

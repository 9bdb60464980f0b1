#pragma once
// Writes a network's ONNX file with trained weights.

#include <functional>
#include <string>

#include "runtime/config/run_config.h"

namespace lockstep::onnx {

// Returns the elements of a parameter by its name, in the graph's layout. Throws if there is none.
using TrainedElements = std::function<const float*(const std::string& name)>;

// Writes the config's file to `path` with these elements in its initializers, including running
// statistics of norms. Everything else stays, and so do the types. Throws ConfigError and IoError,
// and leaves no unfinished file.
void write_trained(const OnnxConfig& config,
                   const std::string& path,
                   const TrainedElements& elements);

}  // namespace lockstep::onnx

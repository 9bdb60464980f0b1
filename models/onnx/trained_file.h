#pragma once
// The way back: a network's file with the weights that a run has found.

#include <functional>
#include <string>

#include "runtime/config/run_config.h"

namespace lockstep::onnx {

// The elements of a parameter by its name, as the graph has them. Throws where there is none.
using TrainedElements = std::function<const float*(const std::string& name)>;

// Writes the config's file to `path` with these elements in its initializers, running statistics of norms
// among them; all else is as it was, and so are the types. Throws ConfigError and IoError, and leaves no
// unfinished file.
void write_trained(const OnnxConfig& config,
                   const std::string& path,
                   const TrainedElements& elements);

}  // namespace lockstep::onnx

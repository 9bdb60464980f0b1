#pragma once
// The network of a file before its data are known: by what the file and the config say.

#include <string>
#include <vector>

#include "models/onnx/network_inputs.h"

namespace lockstep::onnx {

struct UsualNetwork {
  Network network;
  int64_t samples = 1;
};

// The network of as few samples as it takes, with images of a usual size if that is open. Throws ConfigError if it can
// be bound to none.
UsualNetwork usual_network(const NetworkInputs& inputs,
                           const OpenedFile& opened,
                           const OnnxConfig& config);

// Why it cannot be bound: see bind_problems(). For images of the size with the fewest problems.
std::vector<std::string> node_problems(const NetworkInputs& inputs,
                                       const OpenedFile& opened,
                                       const OnnxConfig& config);

// What the file or the config say of the axes (C, H, W) of images, and where they do not, `open`.
Extents with_open_ones(const NetworkInputs& inputs,
                       const OpenedFile& opened,
                       const OnnxConfig& config,
                       Extents open);

}  // namespace lockstep::onnx

#pragma once
// The network of a file before its data are known: only the file and the config are read.

#include <memory>
#include <string>
#include <vector>

#include "models/onnx/bind/bound_networks.h"

namespace lockstep::onnx {

struct UsualNetwork {
  std::shared_ptr<const Network> network;
  BoundForm form;  // what it is bound to
};

// The network with as few samples as it accepts, with images of a usual size if the file leaves
// their size open. Networks with masks of tokens are bound to kSamplesOfMasks samples, if they
// accept so many. Throws ConfigError if the network cannot be bound to any such form.
UsualNetwork usual_network(const NetworkInputs& inputs,
                           const OpenedFile& opened,
                           const OnnxConfig& config,
                           BoundNetworks& networks);

// Why the network cannot be bound: see bind_problems(). Among the forms that usual_network() tries,
// the one with the fewest problems is reported.
std::vector<std::string> node_problems(const NetworkInputs& inputs,
                                       const OpenedFile& opened,
                                       const OnnxConfig& config);

// The extents of the axes (C, H, W) of images that the file or the config fix; those of `open` for
// other axes.
Extents with_open_ones(const NetworkInputs& inputs,
                       const OpenedFile& opened,
                       const OnnxConfig& config,
                       Extents open);

}  // namespace lockstep::onnx

#pragma once
// Ops of a file that there is nothing here for.

#include <string>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Why there is no rule for the op of a node.
std::string why_unknown(const Node& node);

// One sentence for each op of the file that cannot be trained, with its first node: that is not known, or that these
// outputs need and that depends on the network's inputs.
std::vector<std::string> unsupported_ops(const File& file, const std::vector<size_t>& outputs);

}  // namespace lockstep::onnx

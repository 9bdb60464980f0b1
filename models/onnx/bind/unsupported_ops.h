#pragma once
// Finds the ops of a file that are not supported.

#include <string>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Why the node's op is not supported.
std::string why_unknown(const Node& node);

// A sentence for each op of the file that is unknown, or that cannot be trained although these
// outputs depend on it and it depends on the network's inputs. Each sentence names the op's first
// node.
std::vector<std::string> unsupported_ops(const File& file, const std::vector<size_t>& outputs);

}  // namespace lockstep::onnx

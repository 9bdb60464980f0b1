#pragma once
// What a file has that cannot be trained: ops that are not supported, and parameters that no
// gradient reaches.

#include <cstddef>
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

// Turns parameters into constants if no differentiable path leads from them to an output: for
// example, if they are only rounded or compared, or pass PyTorch's detach(). `outputs` has the
// indices of the outputs with losses; empty: all.
void hold_unreached(Network& network, const std::vector<size_t>& outputs);

}  // namespace lockstep::onnx

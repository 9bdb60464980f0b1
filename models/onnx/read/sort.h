#pragma once

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Sorts the nodes topologically. If the file's order is topological, it stays. Throws ConfigError
// if the nodes have a cycle.
void sort_nodes(File& file);

}  // namespace lockstep::onnx

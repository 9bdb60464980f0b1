#pragma once

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Brings the nodes into an order in which everything is computed before it is used: the file's where
// that is one. Throws ConfigError that names a node of a cycle.
void sort_nodes(File& file);

}  // namespace lockstep::onnx

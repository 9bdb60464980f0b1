#pragma once
// Nodes that together are one op of the house.

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

// Takes the RMS norms that exporters write node by node. Lowering::run() begins with it.
void fuse_nodes(Lowering& lowering);

}  // namespace lockstep::onnx

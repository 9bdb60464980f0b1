#pragma once
// Fuses groups of nodes into one native op.

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

// Fuses RMS norms that exporters write node by node. Lowering::run() begins with it.
void fuse_nodes(Lowering& lowering);

}  // namespace lockstep::onnx

#pragma once
// Fuses groups of nodes into one native op.

#include "models/onnx/nodes/lowering/fusion_plan.h"

namespace lockstep::onnx {

// Finds RMS norms that exporters write node by node.
void fuse_nodes(const Readers& readers, FusionPlan& plan);

// If the node, a Reshape, begins a group norm as exporters write it (an instance norm between two
// reshapes, followed by gains and biases), lowers all of it and returns true.
bool lower_as_group_norm(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

#pragma once
// The axes of reductions and softmax.

#include <vector>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// Which axes are reduced. If the node has no axes: all, or none with noop_with_empty_axes.
std::vector<bool> reduced_axes(const NodeView& node);
// The axes over which a softmax normalises: one axis, or before opset 13 all axes from `axis` on.
std::vector<bool> softmax_axes(const NodeView& node);

}  // namespace lockstep::onnx

#pragma once
// The axes that ops go over.

#include <vector>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// Which axes are reduced. No axes: all, or none if the node says so.
std::vector<bool> reduced_axes(const NodeView& node);
// The axes of softmax and its kin. Before opset 13 the input is a matrix whose rows begin at `axis`.
std::vector<bool> softmax_axes(const NodeView& node);

}  // namespace lockstep::onnx

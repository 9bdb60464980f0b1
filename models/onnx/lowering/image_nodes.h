#pragma once
// What nodes that work on images (N, C, H, W) have in common.

#include <cstdint>
#include <vector>

#include "models/onnx/lowering/lowering.h"
#include "runtime/graph/extent2d.h"

namespace lockstep::onnx {

// Two numbers of an attribute, which the message names where there are others.
Extent2d extent2d(const Node& node, const std::vector<int64_t>& list, const char* attribute);

// Refuses a node whose first input has other axes.
void require_images(Lowering& lowering, const Node& node);

// The second input (O, I, KH, KW), a parameter of the file, as (O, KH, KW, I).
TensorId weight_of_images(Lowering& lowering, const Node& node);

// The third input, a parameter of the file; kNoTensor where there is none, or zeros, as exporters write
// where a layer has no bias.
TensorId bias_of_images(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

#pragma once
// Which parameters of a network a gradient reaches.

#include <cstddef>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Makes constants of the parameters that reach no output by a differentiable path, as those that are only
// rounded, compared or counted, or that stand behind PyTorch's detach(). `outputs`: places of those that the
// losses are of; none: all.
void hold_unreached(Network& network, const std::vector<size_t>& outputs);

}  // namespace lockstep::onnx

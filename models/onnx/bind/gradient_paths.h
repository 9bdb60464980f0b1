#pragma once
// Finds the parameters of a network that no gradient reaches.

#include <cstddef>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Turns parameters into constants if no differentiable path leads from them to an output: for
// example, if they are only rounded or compared, or pass PyTorch's detach(). `outputs` has the
// indices of the outputs with losses; empty: all.
void hold_unreached(Network& network, const std::vector<size_t>& outputs);

}  // namespace lockstep::onnx

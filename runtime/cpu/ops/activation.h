#pragma once
// The parts of the activation op that other ops use.

#include "runtime/graph/ops/activation.h"

namespace lockstep::cpu {

// d_x = d_y * activation'.
void activation_backward(const graph::ActivationBackward<float>& op);

}  // namespace lockstep::cpu

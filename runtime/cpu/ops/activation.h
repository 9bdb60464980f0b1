#pragma once
// What other ops need of activations, whose op is in activation.cc too.

#include "runtime/graph/ops/activation.h"

namespace lockstep::cpu {

// d_x = d_y * activation'.
void activation_backward(const ActivationBackward<float>& op);

}  // namespace lockstep::cpu

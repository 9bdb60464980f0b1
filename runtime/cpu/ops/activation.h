#pragma once
// The parts of the activation op that other ops use.

#include "runtime/graph/ops/activation.h"

namespace lockstep::cpu {

// d_x = d_y * activation'. T: float or BFloat16.
template <typename T>
void activation_backward(const graph::ActivationBackward<T>& op);

}  // namespace lockstep::cpu

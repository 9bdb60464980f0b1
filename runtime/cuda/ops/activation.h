#pragma once
// The parts of the activation op that other ops use on the GPU, if a product cannot apply the
// activation itself. T is float, BFloat16 or Float16; arithmetic is in float.

#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/activation.h"

namespace lockstep::cuda {

// y = activation(x).
template <typename T>
void activation_forward(const graph::ActivationForward<T>& op, Stream stream);

// d_x = d_y * activation'.
template <typename T>
void activation_backward(const graph::ActivationBackward<T>& op, Stream stream);

}  // namespace lockstep::cuda

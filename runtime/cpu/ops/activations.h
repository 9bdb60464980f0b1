#pragma once
// Activation functions over flat arrays, for graphs in which they are not fused into a linear op.

#include <cstdint>

#include "runtime/graph/activation.h"

namespace lockstep::cpu {

// y = activation(x). In place (y == x) is allowed.
void activation_forward(Activation activation,
                        const float* x,  // (n)
                        float* y,        // (n)
                        int64_t n);

// d_x = d_y * activation'. In place (d_x == d_y) is allowed.
void activation_backward(
    Activation activation,
    const float* d_y,    // (n)
    const float* saved,  // (n) x where saves_pre_activation(activation), else y
    float* d_x,          // (n)
    int64_t n);

}  // namespace lockstep::cpu

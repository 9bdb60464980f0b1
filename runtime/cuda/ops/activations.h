#pragma once
// Activation functions over flat arrays on the GPU, for where a product cannot apply them itself.
// T is float, BFloat16 or Float16; arithmetic is in float.

#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/activation.h"

namespace lockstep::cuda {

// y = activation(x). In place (y == x) is allowed.
template <typename T>
void activation_forward(Activation activation,
                        const T* x,  // (n)
                        T* y,        // (n)
                        int64_t n,
                        Stream stream);

// d_x = d_y * activation'. In place (d_x == d_y) is allowed.
template <typename T>
void activation_backward(Activation activation,
                         const T* d_y,    // (n)
                         const T* saved,  // (n) x where saves_pre_activation(activation), else y
                         T* d_x,          // (n)
                         int64_t n,
                         Stream stream);

}  // namespace lockstep::cuda

#pragma once
// activation: y = f(x) elementwise.          inputs x; outputs y
// activation_backward: d_x = d_y * f'(saved). inputs d_y, saved (x for GELU and SiLU, y for ReLU
// and tanh); outputs d_x

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct ActivationAttributes {
  Activation activation = Activation::kNone;
};

namespace ops {

// Elementwise -> shape of x.
TensorId activation(GraphBuilder& builder,
                    const std::string& name,
                    TensorId x,
                    Activation activation);

}  // namespace ops
}  // namespace lockstep

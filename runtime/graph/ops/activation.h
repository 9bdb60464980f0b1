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

template <typename T>
struct ActivationForward {
  Activation activation;
  int64_t n;
  const T* x;  // (n)
  T* y;        // (n). May be x

  static ActivationForward of(const OpCall& op) {
    return {.activation = op.attributes<ActivationAttributes>().activation,
            .n = op.input_shape(0).elements(),
            .x = op.input<T>(0),
            .y = op.output<T>(0)};
  }
};

template <typename T>
struct ActivationBackward {
  Activation activation;
  int64_t n;
  const T* d_y;    // (n)
  const T* saved;  // (n) x if saves_pre_activation(activation), else y
  T* d_x;          // (n). May be d_y

  static ActivationBackward of(const OpCall& op) {
    return {.activation = op.attributes<ActivationAttributes>().activation,
            .n = op.input_shape(0).elements(),
            .d_y = op.input<T>(0),
            .saved = op.input<T>(1),
            .d_x = op.output<T>(0)};
  }
};

}  // namespace lockstep

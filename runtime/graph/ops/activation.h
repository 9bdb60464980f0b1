#pragma once
// activation: y = f(x) elementwise.
// activation_backward: d_x = d_y * f'(saved), where saved is x for GELU and SiLU, y for ReLU and
// tanh.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class ActivationIn : InputIndex { kX };
enum class ActivationOut : OutputIndex { kY };
enum class ActivationBackwardIn : InputIndex { kDY, kSaved };
enum class ActivationBackwardOut : OutputIndex { kDX };

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
            .n = op.input_shape(ActivationIn::kX).elements(),
            .x = op.input<T>(ActivationIn::kX),
            .y = op.output<T>(ActivationOut::kY)};
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
            .n = op.input_shape(ActivationBackwardIn::kDY).elements(),
            .d_y = op.input<T>(ActivationBackwardIn::kDY),
            .saved = op.input<T>(ActivationBackwardIn::kSaved),
            .d_x = op.output<T>(ActivationBackwardOut::kDX)};
  }
};

}  // namespace lockstep::graph

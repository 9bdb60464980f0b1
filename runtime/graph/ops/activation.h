#pragma once
// activation: y = f(x) elementwise.
// activation_backward: d_x = d_y * f'(saved), where saved is x for GELU and SiLU, y for ReLU and
// tanh.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

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
  const OpCall& call = OpCall::none();
  Activation activation = call.attributes<ActivationAttributes>().activation;
  int64_t n = call.input_shape(ActivationIn::kX).elements();
  const T* x = call.input<T>(ActivationIn::kX);  // (n)
  T* y = call.output<T>(ActivationOut::kY);      // (n). May be x
};

template <typename T>
struct ActivationBackward {
  const OpCall& call = OpCall::none();
  Activation activation = call.attributes<ActivationAttributes>().activation;
  int64_t n = call.input_shape(ActivationBackwardIn::kDY).elements();
  const T* d_y = call.input<T>(ActivationBackwardIn::kDY);  // (n)
  // (n) x if saves_pre_activation(activation), else y
  const T* saved = call.input<T>(ActivationBackwardIn::kSaved);
  T* d_x = call.output<T>(ActivationBackwardOut::kDX);  // (n). May be d_y
};

}  // namespace lockstep::graph

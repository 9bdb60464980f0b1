#pragma once
// gated_activation: y = f(gate) * up, with rows [gate | up]: SwiGLU with SiLU, GeGLU with GELU,
// etc. (Shazeer 2020).
// gated_activation_backward: d_gate = d_y * up * f'(gate), d_up = d_y * f(gate); recomputes f.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/activation.h"

namespace lockstep::graph {

enum class GatedActivationIn : InputIndex { kX };
enum class GatedActivationOut : OutputIndex { kY };
enum class GatedActivationBackwardIn : InputIndex { kDY, kX };
enum class GatedActivationBackwardOut : OutputIndex { kDX };  // [d_gate | d_up]

namespace ops {

// x (..., 2I) = [gate | up] -> (..., I).
TensorId gated_activation(GraphBuilder& builder,
                          const std::string& name,
                          TensorId x,
                          Activation activation);

}  // namespace ops

template <typename T>
struct GatedActivationForward {
  const OpCall& call = OpCall::none();
  Activation activation = call.attributes<ActivationAttributes>().activation;
  // of y
  int64_t rows = call.output_shape(GatedActivationOut::kY).rows();
  int64_t columns = call.output_shape(GatedActivationOut::kY).columns();
  const T* x = call.input<T>(GatedActivationIn::kX);  // (rows, 2 columns)
  T* y = call.output<T>(GatedActivationOut::kY);      // (rows, columns)
};

template <typename T>
struct GatedActivationBackward {
  const OpCall& call = OpCall::none();
  Activation activation = call.attributes<ActivationAttributes>().activation;
  // of d_y
  int64_t rows = call.input_shape(GatedActivationBackwardIn::kDY).rows();
  int64_t columns = call.input_shape(GatedActivationBackwardIn::kDY).columns();
  const T* d_y = call.input<T>(GatedActivationBackwardIn::kDY);  // (rows, columns)
  const T* x = call.input<T>(GatedActivationBackwardIn::kX);     // (rows, 2 columns)
  T* d_x = call.output<T>(GatedActivationBackwardOut::kDX);      // (rows, 2 columns). May be x
};

}  // namespace lockstep::graph

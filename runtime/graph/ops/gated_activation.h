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

class GraphBuilder;

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
  Activation activation;
  int64_t rows, columns;  // of y
  const T* x;             // (rows, 2 columns)
  T* y;                   // (rows, columns)

  static GatedActivationForward of(const OpCall& op) {
    return {.activation = op.attributes<ActivationAttributes>().activation,
            .rows = op.output_shape(GatedActivationOut::kY).rows(),
            .columns = op.output_shape(GatedActivationOut::kY).columns(),
            .x = op.input<T>(GatedActivationIn::kX),
            .y = op.output<T>(GatedActivationOut::kY)};
  }
};

template <typename T>
struct GatedActivationBackward {
  Activation activation;
  int64_t rows, columns;  // of d_y
  const T* d_y;           // (rows, columns)
  const T* x;             // (rows, 2 columns)
  T* d_x;                 // (rows, 2 columns). May be x

  static GatedActivationBackward of(const OpCall& op) {
    return {.activation = op.attributes<ActivationAttributes>().activation,
            .rows = op.input_shape(GatedActivationBackwardIn::kDY).rows(),
            .columns = op.input_shape(GatedActivationBackwardIn::kDY).columns(),
            .d_y = op.input<T>(GatedActivationBackwardIn::kDY),
            .x = op.input<T>(GatedActivationBackwardIn::kX),
            .d_x = op.output<T>(GatedActivationBackwardOut::kDX)};
  }
};

}  // namespace lockstep::graph

#pragma once
// Which value the backward pass of an activation needs; shared by the graph, all backends and the
// memory plan.

#include "runtime/config/run_config.h"

namespace lockstep::graph {

// True if the derivative is computed from the activation's input, which must then be kept for the
// backward pass. False if it follows from the output alone, so that the input's memory can be
// reused.
constexpr bool saves_pre_activation(Activation activation) {
  return activation == Activation::kGeluTanh || activation == Activation::kGeluErf ||
         activation == Activation::kSilu;
}

}  // namespace lockstep::graph

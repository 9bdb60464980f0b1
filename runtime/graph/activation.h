#pragma once
// What the backward pass of an activation needs; shared by the graph, every backend and the memory
// plan.

#include "runtime/config/run_config.h"

namespace lockstep {

// True where the derivative is computed from the activation's input (the pre-activation must be
// kept for backward); false where it follows from the output alone, so that the input's memory can
// be reused.
constexpr bool saves_pre_activation(Activation activation) {
  return activation == Activation::kGeluTanh || activation == Activation::kGeluErf ||
         activation == Activation::kSilu;
}

}  // namespace lockstep

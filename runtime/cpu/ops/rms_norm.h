#pragma once
// The parts of the RMS norm op that other ops use.

#include <cstddef>

#include "runtime/graph/ops/rms_norm.h"

namespace lockstep::cpu {

void rms_norm_forward(const graph::RmsNormForward<float>& op);

// The backward pass, and the size of its workspace in bytes.
void rms_norm_backward(const graph::RmsNormBackward<float>& op);
size_t rms_norm_backward_workspace_bytes(const graph::RmsNormBackward<float>& op);

}  // namespace lockstep::cpu

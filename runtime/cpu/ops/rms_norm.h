#pragma once
// What other ops need of RMS norms, whose op is in rms_norm.cc too.

#include <cstddef>

#include "runtime/graph/ops/rms_norm.h"

namespace lockstep::cpu {

void rms_norm_forward(const RmsNormForward<float>& op);

// The backward pass, in a workspace of so many bytes.
void rms_norm_backward(const RmsNormBackward<float>& op);
size_t rms_norm_backward_workspace_bytes(const RmsNormBackward<float>& op);

}  // namespace lockstep::cpu

#pragma once
// The parts of the norms of rows that other ops use.

#include <cstddef>

#include "runtime/graph/ops/row_norm.h"

namespace lockstep::cpu {

void row_norm_forward(const graph::RowNormForward<float>& op);

// The backward pass, and the size of its workspace in bytes.
void row_norm_backward(const graph::RowNormBackward<float>& op);
size_t row_norm_backward_workspace_bytes(const graph::RowNormBackward<float>& op);

}  // namespace lockstep::cpu

#pragma once
// The parts of the norms of rows that other ops use.

#include <cstddef>

#include "runtime/graph/ops/row_norm.h"

namespace lockstep::cpu {

// T: float or BFloat16.
template <typename T>
void row_norm_forward(const graph::RowNormForward<T>& op);

// The backward pass, and the size of its workspace in bytes, which does not depend on T.
template <typename T>
void row_norm_backward(const graph::RowNormBackward<T>& op);
size_t row_norm_backward_workspace_bytes(const graph::RowNormBackward<float>& op);

}  // namespace lockstep::cpu

#pragma once
// The parts of the norms of rows that other ops use. T is float, BFloat16 or Float16.

#include "runtime/cuda/context.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::cuda {

template <typename T>
void row_norm_forward(const graph::RowNormForward<T>& op, Stream stream);

// The backward pass of norms of heads, each by a warp. The workspace is that of norms of rows.
template <typename T>
void head_norm_backward(const graph::RowNormBackward<T>& op, const LaunchContext& context);

}  // namespace lockstep::cuda

#pragma once
// What other ops need of RMS norms on the GPU, whose op is in rms_norm.cu too. T is float, BFloat16
// or Float16; rows have at most as many columns as row_parts.h says.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/rms_norm.h"

namespace lockstep::cuda {

template <typename T>
void rms_norm_forward(const RmsNormForward<T>& op, Stream stream);

// The backward pass, in a workspace of so many bytes.
template <typename T>
void rms_norm_backward(const RmsNormBackward<T>& op, Stream stream);
size_t rms_norm_backward_workspace_bytes(int64_t rows, int64_t columns);

}  // namespace lockstep::cuda

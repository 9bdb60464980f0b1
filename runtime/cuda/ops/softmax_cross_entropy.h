#pragma once
// Softmax and cross-entropy against class targets on the GPU, fused; see
// runtime/cpu/ops/softmax_cross_entropy.h for the formulas and for which rows count. T, the type of
// the logits, is float, BFloat16 or Float16; arithmetic is in float, and no copy of the logits is
// made.

#include <cstdint>

#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::cuda {

template <typename T>
struct SoftmaxCrossEntropy {
  int64_t rows;
  int64_t classes;
  int64_t stride;  // elements from row to row of the logits, at least `classes`
  const LaneContext*
      lane;  // on the device: valid_rows; mix; gradient_scale, which multiplies the gradient
  float label_smoothing;   // in [0, 1)
  const int32_t* targets;  // (rows) -1: not counted; else in [0, classes)
  RowLoss* workspace;      // loss_workspace_bytes(rows)
  double* statistics;      // (4) sum of losses, rows counted, rows correct, 0
};

template <typename T>
void softmax_cross_entropy_forward(const SoftmaxCrossEntropy<T>& op,
                                   const T* logits,  // (rows, stride)
                                   Stream stream);

// The same, and overwrites the logits by their gradient; between `classes` and `stride` by 0.
template <typename T>
void softmax_cross_entropy_forward_backward(const SoftmaxCrossEntropy<T>& op,
                                            T* logits,  // (rows, stride)
                                            Stream stream);

}  // namespace lockstep::cuda

#pragma once
// Losses that are a mean over the outputs of a row, on the GPU: mean squared error and binary
// cross-entropy on logits; see runtime/cpu/ops/mean_squared_error.h and binary_cross_entropy.h for
// the formulas. T, the type of the predictions, is float, BFloat16 or Float16; arithmetic is in
// float.

#include <cstdint>

#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/lane_context.h"

namespace lockstep::cuda {

enum class PointwiseLossKind { kMeanSquaredError, kBinaryCrossEntropy };

struct PointwiseLoss {
  PointwiseLossKind kind;
  int64_t rows;
  int64_t outputs;
  const LaneContext* lane;  // on the device: rows from valid_rows on are not counted and have
                            // gradient 0; gradient_scale multiplies the gradient
  const float* targets;     // (rows, outputs)
  RowLoss* workspace;       // loss_workspace_bytes(rows)
  double* statistics;       // (4) sum of losses, rows counted, rows correct, 0
};

template <typename T>
void pointwise_loss_forward(const PointwiseLoss& op,
                            const T* predictions,  // (rows, outputs)
                            Stream stream);

// The same, and overwrites the predictions by their gradient.
template <typename T>
void pointwise_loss_forward_backward(const PointwiseLoss& op,
                                     T* predictions,  // (rows, outputs)
                                     Stream stream);

}  // namespace lockstep::cuda

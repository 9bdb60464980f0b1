#pragma once

#include <cstdint>

#include "runtime/cpu/ops/loss_rows.h"

namespace lockstep::cpu {

// Mean squared error, fp32: a row's loss = sum over outputs of (y - target)^2 / outputs, gradient =
// 2 (y - target) / outputs * gradient_scale. Rows from valid_rows on are not counted and have
// gradient 0.
struct MeanSquaredError {
  int64_t rows;
  int64_t outputs;
  int64_t valid_rows;
  const float* targets;  // (rows, outputs)
  void* workspace;       // loss_workspace_bytes(rows)
};

// statistics = {sum of losses, rows counted, 0, 0}.
void mean_squared_error_forward(const MeanSquaredError& op,
                                const float* predictions,  // (rows, outputs)
                                double statistics[4]);

// The same, and overwrites the predictions by their gradient.
void mean_squared_error_forward_backward(
    const MeanSquaredError& op,
    float* predictions,  // (rows, outputs) in: predictions, out: gradient
    float gradient_scale,
    double statistics[4]);

}  // namespace lockstep::cpu

#pragma once

#include <cstdint>

#include "runtime/cpu/ops/loss_rows.h"

namespace lockstep::cpu {

// Binary cross-entropy on logits, fp32: a row's loss = mean over outputs of max(x, 0) - x t + log(1
// + e^-|x|), which does not overflow; gradient = (sigmoid(x) - t) / outputs * gradient_scale. Rows
// from valid_rows on are not counted and have gradient 0.
struct BinaryCrossEntropy {
  int64_t rows;
  int64_t outputs;
  int64_t valid_rows;
  const float* targets;  // (rows, outputs) t in [0, 1]
  void* workspace;       // loss_workspace_bytes(rows)
};

// statistics = {sum of losses, rows counted, sum over rows of the fraction of outputs where x > 0
// agrees with t > 0.5, 0}.
void binary_cross_entropy_forward(const BinaryCrossEntropy& op,
                                  const float* logits,  // (rows, outputs)
                                  double statistics[4]);

// The same, and overwrites the logits by their gradient.
void binary_cross_entropy_forward_backward(
    const BinaryCrossEntropy& op,
    float* logits,  // (rows, outputs) in: logits, out: gradient
    float gradient_scale,
    double statistics[4]);

}  // namespace lockstep::cpu

#pragma once

#include <cstdint>

#include "runtime/cpu/ops/loss_rows.h"

namespace lockstep::cpu {

// Softmax and cross-entropy against class targets, fused, fp32. For p = softmax(x) and smoothing s,
// as PyTorch defines it:
//   loss = -(1 - s) log p[target] - s / classes * sum_v log p[v]
//   gradient = (p - (1 - s) onehot(target) - s / classes) * gradient_scale
// A row whose target is -1, or whose number is valid_rows or more, is not counted and has gradient
// 0. A row is correct where the first of its largest logits is the target's. The caller has checked
// that targets are -1 or in [0, classes).
// Where mix is below 1, row i of the n = min(rows, valid_rows) has two targets: log p[target] and
// onehot(target) are mix times those of its own plus 1 - mix times those of row n - 1 - i's, unless
// that one is -1. Whether the row is correct is a matter of its own.
struct SoftmaxCrossEntropy {
  int64_t rows;
  int64_t classes;
  int64_t valid_rows;
  float label_smoothing;   // in [0, 1)
  const int32_t* targets;  // (rows)
  void* workspace;         // loss_workspace_bytes(rows)
  float mix = 1;           // in [0, 1]; 1: one target
};

// statistics = {sum of losses, rows counted, rows correct, 0}.
void softmax_cross_entropy_forward(const SoftmaxCrossEntropy& op,
                                   const float* logits,  // (rows, classes)
                                   double statistics[4]);

// The same, and overwrites the logits by their gradient.
void softmax_cross_entropy_forward_backward(
    const SoftmaxCrossEntropy& op,
    float* logits,  // (rows, classes) in: logits, out: gradient
    float gradient_scale,
    double statistics[4]);

}  // namespace lockstep::cpu

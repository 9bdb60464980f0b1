#pragma once
// The parts of the loss that other ops use.

#include "runtime/cpu/ops/loss_rows.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cpu {

// Writes the losses of all rows to `results` (rows) and, if op.gradient is set, their gradient; not
// the statistics.
void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<float>& op,
                                const graph::LaneContext& lane,
                                LossRow* results);

}  // namespace lockstep::cpu

#pragma once
// What other ops need of the loss, whose op is in softmax_cross_entropy.cc too.

#include "runtime/cpu/ops/loss_rows.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cpu {

// The losses of all rows, to `results` (rows), and where it is wanted their gradient; not the
// statistics.
void softmax_cross_entropy_rows(const SoftmaxCrossEntropy<float>& op,
                                const LaneContext& lane,
                                LossRow* results);

}  // namespace lockstep::cpu

#pragma once
// The parts of the loss that other ops use on the GPU. T is float, BFloat16 or Float16.

#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cuda {

// Queues on the call's stream: the losses of all rows, written to `results` (rows), and, if
// op.gradient is set, their gradient; not the statistics.
template <typename T>
void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<T>& op,
                                const graph::OpCall& call,
                                RowLoss* results);

}  // namespace lockstep::cuda

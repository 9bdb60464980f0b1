#pragma once
// The sum of the losses' per-row results, and the weights of classes or outputs.

#include <cstdint>

#include "runtime/cuda/plan/losses.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Copies weights from the host to `to` on the device.
void copy_weights(const float* weights, int64_t count, float* to, Stream stream);

// statistics = {sum of losses, of weights, of rows correct, of top5}, in double in a fixed order.
void sum_row_losses(const RowLoss* rows,  // (count)
                    int64_t count,
                    double* statistics,  // (4)
                    Stream stream);

}  // namespace lockstep::cuda

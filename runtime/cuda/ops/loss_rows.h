#pragma once
// The sum of the losses' per-row results.

#include <cstdint>

#include "runtime/cuda/plan/losses.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// statistics = {sum of losses, of weights, of rows correct, of top5}, in double in a fixed order.
void sum_row_losses(const RowLoss* rows,  // (count)
                    int64_t count,
                    double* statistics,  // (4)
                    Stream stream);

}  // namespace lockstep::cuda

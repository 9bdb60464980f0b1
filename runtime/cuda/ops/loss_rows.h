#pragma once
// The sum of the losses' per-row results, and the weights of classes or outputs.

#include <cstdint>

#include "runtime/cuda/plan/losses.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Copies weights from the host to `to` on the device.
void copy_weights(const float* weights, int64_t count, float* to, Stream stream);

// statistics = {sum of losses, of weights, of rows correct, of top5}, in double in a fixed order.
// Overwrites some of the rows if there are many.
void sum_row_losses(RowLoss* rows,  // (count)
                    int64_t count,
                    double* statistics,  // (4)
                    Stream stream);

// sums (rows / sequence_rows): minus the losses of each sequence's rows, added in double in a fixed
// order.
void sum_sequence_rows(const RowLoss* results,  // (rows)
                       int64_t rows,
                       int64_t sequence_rows,
                       float* sums,
                       Stream stream);

// scales (rows): minus d_sums (rows / sequence_rows) of each row's sequence.
void scale_sequence_rows(
    const float* d_sums, int64_t rows, int64_t sequence_rows, float* scales, Stream stream);

}  // namespace lockstep::cuda

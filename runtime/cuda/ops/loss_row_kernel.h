#pragma once
// The kernel of losses whose operands are LossIn and LossOut and of which a warp handles a row.
// Only kernel files include this.

#include <cstdint>

#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cuda {

inline constexpr int kLossRowThreads = 128;

template <typename RowOf>
__global__ void __launch_bounds__(kLossRowThreads) loss_row_kernel(
    RowOf row_of, int64_t rows, const graph::LaneContext* lane_context, RowLoss* results) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kLossRowThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const bool counts = row < lane_context->valid_rows;
  const int lane = threadIdx.x % kWarp;
  const RowLoss result = row_of(row, lane, counts, lane_context->gradient_scale);
  if (lane == 0) results[row] = counts ? result : RowLoss{0, kNotCounted};
}

// Queues the loss of all rows, then its statistics. The device function row_of(row, lane of the
// warp, whether the row counts, gradient_scale) returns the row's result in lane 0 and writes the
// gradient, which is 0 for a row that does not count. The call's workspace begins with a RowLoss
// for each row.
template <typename RowOf>
void run_loss_rows(const graph::OpCall& call, RowOf row_of) {
  const int64_t rows = call.input_shape(graph::LossIn::kPrediction).rows();
  auto* const results = call.workspace<RowLoss>();
  launch({blocks_for(rows, kLossRowThreads / kWarp), kLossRowThreads, stream_of(call)},
         loss_row_kernel<RowOf>,
         row_of,
         rows,
         context_of(call).lane,
         results);
  sum_row_losses(results, rows, call.output<double>(graph::LossOut::kStatistics), stream_of(call));
}

}  // namespace lockstep::cuda

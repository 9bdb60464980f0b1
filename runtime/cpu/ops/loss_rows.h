#pragma once
// The driver of losses whose operands are LossIn and LossOut, and the results of their rows. Rows
// are computed in any order by any thread; their results are then added in the order of the rows.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/cpu/in_parallel.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cpu {

struct LossRow {
  double loss;
  double correct;   // 1 or 0; with several outputs, their mean
  double counted;   // 1 or the row's weight; 0 for padding and ignored rows, whose loss and correct
                    // are 0
  double top5 = 0;  // 1 if the target is among the five largest logits; only in evaluation
};

// Workspace in bytes that each loss kernel needs for `rows` rows.
constexpr size_t loss_workspace_bytes(int64_t rows) { return rows * sizeof(LossRow); }

// statistics = {sum of losses, rows counted, sum of correct, sum of top5}.
inline void sum_loss_rows(const LossRow* rows, int64_t count, double statistics[4]) {
  double loss = 0, counted = 0, correct = 0, top5 = 0;
  for (int64_t i = 0; i < count; ++i) {
    loss += rows[i].loss;
    counted += rows[i].counted;
    correct += rows[i].correct;
    top5 += rows[i].top5;
  }
  statistics[0] = loss;
  statistics[1] = counted;
  statistics[2] = correct;
  statistics[3] = top5;
}

inline size_t loss_workspace(const graph::OpCall& call) {
  return loss_workspace_bytes(call.input_shape(graph::LossIn::kPrediction).rows());
}

// Rows [begin, end) of a loss: row_of(row) computes the result and the gradient of a row that
// counts; the gradient of others is 0.
template <typename Op, typename RowOf>
void compute_loss_rows(const Op& op,
                       const graph::LaneContext& lane,
                       LossRow* results,
                       int64_t begin,
                       int64_t end,
                       RowOf row_of) {
  const int64_t columns = op.call.input_shape(graph::LossIn::kPrediction).columns();
  for (int64_t row = begin; row < end; ++row) {
    const bool counts = row < lane.valid_rows;
    results[row] = counts ? row_of(row) : LossRow{};
    if (!counts && op.gradient != nullptr) std::fill_n(op.gradient + row * columns, columns, 0.0f);
  }
}

// Runs a loss on all threads and writes its statistics. kernel(op, lane, results, begin, end)
// computes rows; the call's workspace is loss_workspace().
template <typename Op>
void run_loss(
    const Op& op,
    void (*kernel)(const Op&, const graph::LaneContext&, LossRow*, int64_t begin, int64_t end)) {
  const Shape& prediction = op.call.input_shape(graph::LossIn::kPrediction);
  auto* const results = op.call.template workspace<LossRow>();
  in_parallel(
      prediction.rows(), grain_rows(prediction.columns()), kernel, op, op.call.lane(), results);
  sum_loss_rows(results, prediction.rows(), op.statistics);
}

}  // namespace lockstep::cpu

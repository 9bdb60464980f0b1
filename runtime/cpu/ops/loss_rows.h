#pragma once
// The results of the loss kernels. Rows are computed in any order by any thread; their results are
// then added in the order of the rows.

#include <cstddef>
#include <cstdint>

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

}  // namespace lockstep::cpu

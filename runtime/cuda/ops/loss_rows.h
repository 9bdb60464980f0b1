#pragma once
// What the losses leave for each row, and its sum.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// The loss of a row and the share of its predictions that were right, or kNotCounted where the row
// does not count.
struct RowLoss {
  float loss;
  float correct;
  float top5 = 0;    // 1 where the target is among the five largest logits; in evaluation
  float weight = 1;  // what the row counts as
};
inline constexpr float kNotCounted = -1;

inline size_t loss_workspace_bytes(int64_t rows) {
  return static_cast<size_t>(rows) * sizeof(RowLoss);
}

// statistics = {sum of losses, of weights, of rows correct, of top5}, in double in a fixed order.
void sum_row_losses(const RowLoss* rows,  // (count)
                    int64_t count,
                    double* statistics,  // (4)
                    Stream stream);

}  // namespace lockstep::cuda

#pragma once
// The workspaces of losses.

#include <algorithm>

#include "runtime/cuda/plan/column_sum.h"
#include "runtime/graph/ops/contrastive.h"
#include "runtime/graph/ops/ctc_loss.h"
#include "runtime/graph/ops/linear_cross_entropy.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::cuda {

// The loss of a row and the share of its predictions that were correct, or kNotCounted if the row
// is not counted.
struct RowLoss {
  float loss;
  float correct;
  float top5 = 0;    // 1 if the target is among the five largest logits; only in evaluation
  float weight = 1;  // of the row in the sums
};
inline constexpr float kNotCounted = -1;

// How many blocks sum the rows of a loss; the sums of several are added by one more kernel.
constexpr int64_t loss_row_parts(int64_t rows) {
  constexpr int64_t kRowsOfBlock = 16384;
  return std::max<int64_t>(1, rows / kRowsOfBlock);
}

// Logits of a long row that a block keeps in registers, so that it reads them once.
inline constexpr int kLongRowThreads = 1024;
constexpr int kept_vectors(size_t element_bytes) { return element_bytes == 2 ? 7 : 4; }
constexpr int64_t max_kept_columns(size_t element_bytes) {
  return int64_t{kept_vectors(element_bytes)} * kLongRowThreads *
         (16 / static_cast<int64_t>(element_bytes));
}

inline size_t loss_workspace_bytes(int64_t rows) {
  return static_cast<size_t>(rows) * sizeof(RowLoss);
}

inline size_t pointwise_loss_workspace(const graph::OpCall& call) {
  const graph::PointwiseLoss<float> op{call};
  const auto weights = static_cast<size_t>(op.pos_weight == nullptr ? 0 : op.outputs);
  return loss_workspace_bytes(op.rows) + weights * sizeof(float);
}

// Results of the rows.
inline size_t loss_rows_workspace(const graph::OpCall& call) {
  return loss_workspace_bytes(call.input_shape(graph::LossIn::kPrediction).rows());
}

// The numbers of all samples, then their losses.
inline size_t ctc_loss_workspace(const graph::CtcLoss<float>& op) {
  return aligned_bytes(op.workspace_bytes()) + loss_workspace_bytes(op.samples);
}

// The losses of the anchors, and their shares of the gradient of logit_scale.
inline size_t contrastive_workspace(const graph::OpCall& call) {
  const int64_t batch = call.attributes<graph::ContrastiveAttributes>().batch;
  return loss_workspace_bytes(batch) + static_cast<size_t>(batch) * sizeof(float);
}

inline size_t softmax_cross_entropy_workspace(const graph::SoftmaxCrossEntropy<float>& op) {
  const auto classes = static_cast<size_t>(op.weights == nullptr ? 0 : op.classes);
  return loss_workspace_bytes(op.rows) + classes * sizeof(float);
}

// The workspace of linear_cross_entropy: the logits of a chunk, the losses of all rows, their
// gradient scales if there are d_sums, and the workspace of the bias' gradient.
struct LinearCrossEntropyWorkspace {
  size_t logits, losses, scales, sums;  // bytes

  static LinearCrossEntropyWorkspace of(const graph::OpCall& call) {
    const graph::LinearCrossEntropy<std::byte> op{call};
    const auto elements = static_cast<size_t>(op.chunk_rows() * op.attributes.stride);
    const int64_t classes = op.shape.outputs;
    const size_t sums = std::max(column_sum_workspace_bytes(op.chunk_rows(), classes),
                                 column_sum_workspace_bytes(op.rows_of(op.chunks() - 1), classes));
    return {aligned_bytes(elements * size_of(call.input_dtype(graph::LinearCrossEntropyIn::kX))),
            aligned_bytes(loss_workspace_bytes(op.shape.rows)),
            call.has_input(graph::LinearCrossEntropyIn::kDSums)
                ? aligned_bytes(static_cast<size_t>(op.shape.rows) * sizeof(float))
                : 0,
            call.has_output(graph::LinearCrossEntropyOut::kDBias) ? sums : 0};
  }
};

inline size_t linear_cross_entropy_workspace(const graph::OpCall& call) {
  const auto parts = LinearCrossEntropyWorkspace::of(call);
  return parts.logits + parts.losses + parts.scales + parts.sums;
}

}  // namespace lockstep::cuda

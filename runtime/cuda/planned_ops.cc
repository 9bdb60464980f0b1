#include "runtime/cuda/planned_ops.h"

#include <array>

#include "runtime/cuda/flat/tree_sum.h"
#include "runtime/cuda/matmul/newton_schulz.h"
#include "runtime/cuda/plan/attention.h"
#include "runtime/cuda/plan/conv2d.h"
#include "runtime/cuda/plan/indexing.h"
#include "runtime/cuda/plan/losses.h"
#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/plan/products.h"
#include "runtime/cuda/workspace.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/resize.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::cuda {
namespace {

constexpr int kHeadMultiple = 64;  // full tiles of products, and full cache lines

template <auto workspace_bytes = exec::no_workspace, auto supports = exec::any_op>
constexpr exec::Implementation of(graph::OpKind kind) {
  return exec::row<nullptr, workspace_bytes, supports>(kind, "planned");
}

// The kinds with a workspace or limits. All others have neither.
constexpr exec::Implementation kWithWorkspaceOrLimits[] = {
    of<linear_backward_workspace>(graph::OpKind::kLinearBackward),
    of<lora_workspace>(graph::OpKind::kLoraAdd),
    of<lora_workspace>(graph::OpKind::kLoraAddBackward),
    of<embedding_backward_workspace>(graph::OpKind::kEmbeddingBackward),
    of<exec::no_workspace, supports_row>(graph::OpKind::kLayerNorm),
    of<row_norm_backward_workspace, supports_row>(graph::OpKind::kLayerNormBackward),
    of<attention_workspace, native_attention_supports>(graph::OpKind::kAttention),
    of<attention_backward_workspace, native_attention_supports>(graph::OpKind::kAttentionBackward),
    of<exec::no_workspace, image_normalize_supports>(graph::OpKind::kImageNormalize),
    of<cudnn_conv2d_workspace<Conv2dPass::kForward>, conv2d_supports_op>(graph::OpKind::kConv2d),
    of<conv2d_backward_workspace, conv2d_supports_op>(graph::OpKind::kConv2dBackward),
    of<batch_statistics_workspace>(graph::OpKind::kBatchNorm),
    of<batch_norm_sums_workspace>(graph::OpKind::kBatchNormBackward),
    of<batch_statistics_workspace>(graph::OpKind::kBatchStatistics),
    of<batch_norm_sums_workspace>(graph::OpKind::kBatchNormSums),
    of<batch_norm_input_gradient_workspace>(graph::OpKind::kBatchNormInputGradient),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kMaxPool),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kMaxPoolBackward),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kAvgPool),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kAvgPoolBackward),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kGlobalAvgPool),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kGlobalAvgPoolBackward),
    of<exec::no_workspace, graph::supports_window>(graph::OpKind::kLocalResponseNorm),
    of<exec::no_workspace, graph::supports_window>(graph::OpKind::kLocalResponseNormBackward),
    of<softmax_cross_entropy_workspace>(graph::OpKind::kSoftmaxCrossEntropy),
    of<linear_cross_entropy_workspace>(graph::OpKind::kLinearCrossEntropy),
    of<contrastive_workspace>(graph::OpKind::kContrastive),
    of<linear_cross_entropy_workspace>(graph::OpKind::kSequenceLogProb),
    of<linear_cross_entropy_workspace>(graph::OpKind::kSequenceLogProbBackward),
    of<loss_rows_workspace>(graph::OpKind::kPreferenceLoss),
    of<pointwise_loss_workspace>(graph::OpKind::kBinaryCrossEntropy),
    of<pointwise_loss_workspace>(graph::OpKind::kMeanSquaredError),
    of<pointwise_loss_workspace>(graph::OpKind::kMeanAbsoluteError),
    of<pointwise_loss_workspace>(graph::OpKind::kHuber),
    of<loss_rows_workspace>(graph::OpKind::kSoftCrossEntropy),
    of<loss_rows_workspace>(graph::OpKind::kGivenLoss),
    of<exec::no_workspace, supports_row>(graph::OpKind::kRmsNorm),
    of<row_norm_backward_workspace, supports_row>(graph::OpKind::kRmsNormBackward),
    of<exec::no_workspace, qk_norm_supports>(graph::OpKind::kQkNorm),
    of<qk_norm_backward_workspace, qk_norm_supports>(graph::OpKind::kQkNormBackward),
    of<rotary_workspace, rotary_supports>(graph::OpKind::kRotary),
    of<rotary_workspace, rotary_supports>(graph::OpKind::kRotaryBackward),
    of<exec::no_workspace, cached_attention_supports>(graph::OpKind::kCachedAttention),
    of<rearrange_backward_workspace>(graph::OpKind::kRearrangeBackward),
    of<batched_matmul_workspace>(graph::OpKind::kBatchedMatmul),
    of<gather_backward_workspace>(graph::OpKind::kGatherBackward),
    of<gather_elements_backward_workspace>(graph::OpKind::kGatherElementsBackward),
    of<reduce_workspace>(graph::OpKind::kReduce),
    of<group_norm_workspace, group_norm_supports>(graph::OpKind::kGroupNorm),
    of<group_norm_backward_workspace, group_norm_supports>(graph::OpKind::kGroupNormBackward),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kResize),
    of<exec::no_workspace, supports_pixels>(graph::OpKind::kResizeBackward),
    of<cudnn_conv2d_workspace<Conv2dPass::kBackwardInput>, conv2d_supports_op>(
        graph::OpKind::kConvTranspose2d),
    of<conv_transpose2d_backward_workspace, conv2d_supports_op>(
        graph::OpKind::kConvTranspose2dBackward),
    of<recurrent_workspace>(graph::OpKind::kRecurrentBackward),
    of<ctc_loss_workspace>(graph::OpKind::kCtcLoss),
};

constexpr exec::Implementation row_of(graph::OpKind kind) {
  for (const exec::Implementation& row : kWithWorkspaceOrLimits)
    if (row.kind == kind) return row;
  return of(kind);
}

// Without the kinds of the CPU alone, and of the executor.
constexpr auto kPlanned = [] {
  std::array<exec::Implementation, static_cast<size_t>(graph::OpKind::kCount) - 2> rows{};
  auto* next = rows.data();
  for (int k = 0; k < static_cast<int>(graph::OpKind::kCount); ++k) {
    const auto kind = static_cast<graph::OpKind>(k);
    if (kind != graph::OpKind::kConv2dBatchNorm && kind != graph::OpKind::kGatherLanes)
      *next++ = row_of(kind);
  }
  return rows;
}();

}  // namespace

const exec::OpSet& planned_ops() {
  static constexpr exec::Implementations kAll[] = {kPlanned};
  static constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  static const exec::OpSet ops = {"cuda",
                                  kAll,
                                  kTypes,
                                  true,
                                  kWorkspaceBytes,
                                  kHeadMultiple,
                                  kMaxTerms,
                                  kMaxUpdateGroups,
                                  newton_schulz_bytes};
  return ops;
}

}  // namespace lockstep::cuda

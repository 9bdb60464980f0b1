#include "runtime/cuda/planned_ops.h"

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
#include "runtime/graph/ops/layer_norm.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/resize.h"
#include "runtime/graph/ops/rms_norm.h"

namespace lockstep::cuda {
namespace {

constexpr int kLogitsAlignment = 128;  // bytes: full tiles of products, and full cache lines

size_t none(const OpCall&) { return 0; }
bool any(const OpCall&) { return true; }

constexpr Implementation of(OpKind kind,
                            size_t (*workspace_bytes)(const OpCall&) = none,
                            bool (*supports)(const OpCall&) = any) {
  return {kind, "planned", nullptr, workspace_bytes, supports};
}

constexpr Implementation kPlanned[] = {
    of(OpKind::kLinear),
    of(OpKind::kLinearBackward, linear_backward_workspace),
    of(OpKind::kLoraAdd, lora_workspace),
    of(OpKind::kLoraAddBackward, lora_workspace),
    of(OpKind::kActivation),
    of(OpKind::kActivationBackward),
    of(OpKind::kPackedTokens),
    of(OpKind::kEmbedding),
    of(OpKind::kEmbeddingBackward, embedding_backward_workspace),
    of(OpKind::kLayerNorm, none, supports_row<LayerNormIn::kX>),
    of(OpKind::kLayerNormBackward,
       layer_norm_backward_workspace,
       supports_row<LayerNormBackwardIn::kDY>),
    of(OpKind::kAttention, attention_workspace, native_attention_supports),
    of(OpKind::kAttentionBackward, attention_backward_workspace, native_attention_supports),
    of(OpKind::kDropout),
    of(OpKind::kDropoutBackward),
    of(OpKind::kAdd),
    of(OpKind::kCast),
    of(OpKind::kImageNormalize, none, image_normalize_supports),
    of(OpKind::kConv2d, cudnn_conv2d_workspace<Conv2dPass::kForward>, conv2d_supports_op),
    of(OpKind::kConv2dBackward, conv2d_backward_workspace, conv2d_supports_op),
    of(OpKind::kBatchNorm, batch_norm_workspace<BatchNormIn::kX>),
    of(OpKind::kBatchNormBackward, batch_norm_workspace<BatchNormBackwardIn::kDY>),
    of(OpKind::kBatchStatistics, batch_norm_workspace<BatchStatisticsIn::kX>),
    of(OpKind::kBatchNormSums, batch_norm_workspace<BatchNormBackwardIn::kDY>),
    of(OpKind::kBatchNormInputGradient, batch_norm_input_gradient_workspace),
    of(OpKind::kBatchNormRunning),
    of(OpKind::kMaxPool, none, supports_pixels<PoolIn::kX, PoolOut::kY>),
    of(OpKind::kMaxPoolBackward, none, supports_pixels<PoolBackwardIn::kDY, PoolBackwardOut::kDX>),
    of(OpKind::kAvgPool, none, supports_pixels<PoolIn::kX, PoolOut::kY>),
    of(OpKind::kAvgPoolBackward, none, supports_pixels<PoolBackwardIn::kDY, PoolBackwardOut::kDX>),
    of(OpKind::kGlobalAvgPool, none, supports_pixels<PoolIn::kX, PoolOut::kY>),
    of(OpKind::kGlobalAvgPoolBackward,
       none,
       supports_pixels<PoolBackwardIn::kDY, PoolBackwardOut::kDX>),
    of(OpKind::kLocalResponseNorm, none, supports_window),
    of(OpKind::kLocalResponseNormBackward, none, supports_window),
    of(OpKind::kSoftmaxCrossEntropy, softmax_cross_entropy_workspace),
    of(OpKind::kLinearCrossEntropy, linear_cross_entropy_workspace),
    of(OpKind::kBinaryCrossEntropy, pointwise_loss_workspace),
    of(OpKind::kMeanSquaredError, pointwise_loss_workspace),
    of(OpKind::kTotalLoss),
    of(OpKind::kRmsNorm, none, supports_row<RmsNormIn::kX>),
    of(OpKind::kRmsNormBackward, rms_norm_backward_workspace, supports_row<RmsNormBackwardIn::kDY>),
    of(OpKind::kQkNorm, none, qk_norm_supports),
    of(OpKind::kQkNormBackward, qk_norm_backward_workspace, qk_norm_supports),
    of(OpKind::kTokenPooling),
    of(OpKind::kTokenPoolingBackward),
    of(OpKind::kRotary, rotary_workspace, rotary_supports),
    of(OpKind::kRotaryBackward, rotary_workspace, rotary_supports),
    of(OpKind::kCachedAttention, none, cached_attention_supports),
    of(OpKind::kGatedActivation),
    of(OpKind::kGatedActivationBackward),
    of(OpKind::kRearrange),
    of(OpKind::kReshape),
    of(OpKind::kRearrangeBackward, rearrange_backward_workspace),
    of(OpKind::kConcat),
    of(OpKind::kConcatBackward),
    of(OpKind::kBatchedMatmul, batched_matmul_workspace),
    of(OpKind::kGather),
    of(OpKind::kGatherBackward, gather_backward_workspace),
    of(OpKind::kGatherElements),
    of(OpKind::kGatherElementsBackward, gather_elements_backward_workspace),
    of(OpKind::kPointwise),
    of(OpKind::kReduce, reduce_workspace),
    of(OpKind::kDiffusionNoise),
    of(OpKind::kSoftmax),
    of(OpKind::kSoftmaxBackward),
    of(OpKind::kGroupNorm, group_norm_workspace, group_norm_supports),
    of(OpKind::kGroupNormBackward, group_norm_backward_workspace, group_norm_supports),
    of(OpKind::kResize, none, supports_pixels<ResizeIn::kX, ResizeOut::kY>),
    of(OpKind::kResizeBackward, none, supports_pixels<ResizeIn::kDY, ResizeOut::kDX>),
    of(OpKind::kConvTranspose2d,
       cudnn_conv2d_workspace<Conv2dPass::kBackwardInput>,
       conv2d_supports_op),
    of(OpKind::kConvTranspose2dBackward, conv_transpose2d_backward_workspace, conv2d_supports_op),
    of(OpKind::kRecurrent),
    of(OpKind::kRecurrentBackward, recurrent_backward_workspace),
};

}  // namespace

const OpSet& planned_ops() {
  static constexpr Implementations kAll[] = {kPlanned};
  static const OpSet ops = {"cuda",
                            kAll,
                            true,
                            kWorkspaceBytes,
                            kLogitsAlignment,
                            kMaxTerms,
                            kMaxUpdateGroups,
                            newton_schulz_bytes};
  return ops;
}

}  // namespace lockstep::cuda

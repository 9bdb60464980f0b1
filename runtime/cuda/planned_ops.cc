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

size_t none(const graph::OpCall&) { return 0; }
bool any(const graph::OpCall&) { return true; }

constexpr exec::Implementation of(graph::OpKind kind,
                                  size_t (*workspace_bytes)(const graph::OpCall&) = none,
                                  bool (*supports)(const graph::OpCall&) = any) {
  return {kind, "planned", nullptr, workspace_bytes, supports};
}

constexpr exec::Implementation kPlanned[] = {
    of(graph::OpKind::kLinear),
    of(graph::OpKind::kLinearBackward, linear_backward_workspace),
    of(graph::OpKind::kLoraAdd, lora_workspace),
    of(graph::OpKind::kLoraAddBackward, lora_workspace),
    of(graph::OpKind::kActivation),
    of(graph::OpKind::kActivationBackward),
    of(graph::OpKind::kPackedTokens),
    of(graph::OpKind::kEmbedding),
    of(graph::OpKind::kEmbeddingBackward, embedding_backward_workspace),
    of(graph::OpKind::kLayerNorm, none, supports_row<graph::LayerNormIn::kX>),
    of(graph::OpKind::kLayerNormBackward,
       layer_norm_backward_workspace,
       supports_row<graph::LayerNormBackwardIn::kDY>),
    of(graph::OpKind::kAttention, attention_workspace, native_attention_supports),
    of(graph::OpKind::kAttentionBackward, attention_backward_workspace, native_attention_supports),
    of(graph::OpKind::kDropout),
    of(graph::OpKind::kDropoutBackward),
    of(graph::OpKind::kAdd),
    of(graph::OpKind::kCast),
    of(graph::OpKind::kImageNormalize, none, image_normalize_supports),
    of(graph::OpKind::kConv2d, cudnn_conv2d_workspace<Conv2dPass::kForward>, conv2d_supports_op),
    of(graph::OpKind::kConv2dBackward, conv2d_backward_workspace, conv2d_supports_op),
    of(graph::OpKind::kBatchNorm, batch_norm_workspace<graph::BatchNormIn::kX>),
    of(graph::OpKind::kBatchNormBackward, batch_norm_workspace<graph::BatchNormBackwardIn::kDY>),
    of(graph::OpKind::kBatchStatistics, batch_norm_workspace<graph::BatchStatisticsIn::kX>),
    of(graph::OpKind::kBatchNormSums, batch_norm_workspace<graph::BatchNormBackwardIn::kDY>),
    of(graph::OpKind::kBatchNormInputGradient, batch_norm_input_gradient_workspace),
    of(graph::OpKind::kBatchNormRunning),
    of(graph::OpKind::kMaxPool, none, supports_pixels<graph::PoolIn::kX, graph::PoolOut::kY>),
    of(graph::OpKind::kMaxPoolBackward,
       none,
       supports_pixels<graph::PoolBackwardIn::kDY, graph::PoolBackwardOut::kDX>),
    of(graph::OpKind::kAvgPool, none, supports_pixels<graph::PoolIn::kX, graph::PoolOut::kY>),
    of(graph::OpKind::kAvgPoolBackward,
       none,
       supports_pixels<graph::PoolBackwardIn::kDY, graph::PoolBackwardOut::kDX>),
    of(graph::OpKind::kGlobalAvgPool, none, supports_pixels<graph::PoolIn::kX, graph::PoolOut::kY>),
    of(graph::OpKind::kGlobalAvgPoolBackward,
       none,
       supports_pixels<graph::PoolBackwardIn::kDY, graph::PoolBackwardOut::kDX>),
    of(graph::OpKind::kLocalResponseNorm, none, graph::supports_window),
    of(graph::OpKind::kLocalResponseNormBackward, none, graph::supports_window),
    of(graph::OpKind::kSoftmaxCrossEntropy, softmax_cross_entropy_workspace),
    of(graph::OpKind::kLinearCrossEntropy, linear_cross_entropy_workspace),
    of(graph::OpKind::kBinaryCrossEntropy, pointwise_loss_workspace),
    of(graph::OpKind::kMeanSquaredError, pointwise_loss_workspace),
    of(graph::OpKind::kTotalLoss),
    of(graph::OpKind::kRmsNorm, none, supports_row<graph::RmsNormIn::kX>),
    of(graph::OpKind::kRmsNormBackward,
       rms_norm_backward_workspace,
       supports_row<graph::RmsNormBackwardIn::kDY>),
    of(graph::OpKind::kQkNorm, none, qk_norm_supports),
    of(graph::OpKind::kQkNormBackward, qk_norm_backward_workspace, qk_norm_supports),
    of(graph::OpKind::kTokenPooling),
    of(graph::OpKind::kTokenPoolingBackward),
    of(graph::OpKind::kRotary, rotary_workspace, rotary_supports),
    of(graph::OpKind::kRotaryBackward, rotary_workspace, rotary_supports),
    of(graph::OpKind::kCachedAttention, none, cached_attention_supports),
    of(graph::OpKind::kGatedActivation),
    of(graph::OpKind::kGatedActivationBackward),
    of(graph::OpKind::kRearrange),
    of(graph::OpKind::kReshape),
    of(graph::OpKind::kRearrangeBackward, rearrange_backward_workspace),
    of(graph::OpKind::kConcat),
    of(graph::OpKind::kConcatBackward),
    of(graph::OpKind::kBatchedMatmul, batched_matmul_workspace),
    of(graph::OpKind::kGather),
    of(graph::OpKind::kGatherBackward, gather_backward_workspace),
    of(graph::OpKind::kGatherElements),
    of(graph::OpKind::kGatherElementsBackward, gather_elements_backward_workspace),
    of(graph::OpKind::kPointwise),
    of(graph::OpKind::kReduce, reduce_workspace),
    of(graph::OpKind::kDiffusionNoise),
    of(graph::OpKind::kSoftmax),
    of(graph::OpKind::kSoftmaxBackward),
    of(graph::OpKind::kGroupNorm, group_norm_workspace, group_norm_supports),
    of(graph::OpKind::kGroupNormBackward, group_norm_backward_workspace, group_norm_supports),
    of(graph::OpKind::kResize, none, supports_pixels<graph::ResizeIn::kX, graph::ResizeOut::kY>),
    of(graph::OpKind::kResizeBackward,
       none,
       supports_pixels<graph::ResizeIn::kDY, graph::ResizeOut::kDX>),
    of(graph::OpKind::kConvTranspose2d,
       cudnn_conv2d_workspace<Conv2dPass::kBackwardInput>,
       conv2d_supports_op),
    of(graph::OpKind::kConvTranspose2dBackward,
       conv_transpose2d_backward_workspace,
       conv2d_supports_op),
    of(graph::OpKind::kRecurrent),
    of(graph::OpKind::kRecurrentBackward, recurrent_backward_workspace),
};

}  // namespace

const exec::OpSet& planned_ops() {
  static constexpr exec::Implementations kAll[] = {kPlanned};
  static const exec::OpSet ops = {"cuda",
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

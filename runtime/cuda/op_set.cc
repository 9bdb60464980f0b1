#include "runtime/cuda/flat/tree_sum.h"
#include "runtime/cuda/ops/launchers.h"
#include "runtime/cuda/workspace.h"

namespace lockstep::cuda {
namespace {

bool always(const Graph&, const Op&) { return true; }
size_t no_workspace(const Graph&, const Op&) { return 0; }

const Implementation kImplementations[] = {
    {OpKind::kLinear, "cublaslt", always, no_workspace, run_linear},
    {OpKind::kLinearBackward, "cublaslt", always, linear_backward_workspace, run_linear_backward},
    {OpKind::kActivation, "own", always, no_workspace, run_activation},
    {OpKind::kActivationBackward, "own", always, no_workspace, run_activation_backward},
    {OpKind::kEmbedding, "own", always, no_workspace, run_embedding},
    {OpKind::kEmbeddingBackward,
     "own",
     always,
     embedding_backward_workspace,
     run_embedding_backward},
    {OpKind::kLayerNorm, "own", supports_layer_norm, no_workspace, run_layer_norm},
    {OpKind::kLayerNormBackward,
     "own",
     supports_layer_norm,
     layer_norm_backward_workspace,
     run_layer_norm_backward},
    {OpKind::kDropout, "own", always, no_workspace, run_dropout},
    {OpKind::kDropoutBackward, "own", always, no_workspace, run_dropout},
    {OpKind::kAdd, "own", always, no_workspace, run_add},
    {OpKind::kCast, "own", always, no_workspace, run_cast},
    {OpKind::kAttention, "cudnn or own", supports_attention, attention_workspace, run_attention},
    {OpKind::kAttentionBackward,
     "cudnn or own",
     supports_attention,
     attention_workspace,
     run_attention_backward},
    {OpKind::kImageNormalize, "own", supports_image_normalize, no_workspace, run_image_normalize},
    {OpKind::kConv2d, "cudnn or own", supports_conv2d, conv2d_workspace, run_conv2d},
    {OpKind::kConv2dBackward,
     "cudnn or own",
     supports_conv2d,
     conv2d_workspace,
     run_conv2d_backward},
    {OpKind::kBatchNorm, "own", always, batch_norm_workspace, run_batch_norm},
    {OpKind::kBatchNormBackward, "own", always, batch_norm_workspace, run_batch_norm_backward},
    {OpKind::kBatchStatistics, "own", always, batch_norm_workspace, run_batch_statistics},
    {OpKind::kBatchNormSums, "own", always, batch_norm_workspace, run_batch_norm_sums},
    {OpKind::kBatchNormInputGradient,
     "own",
     always,
     batch_norm_input_gradient_workspace,
     run_batch_norm_input_gradient},
    {OpKind::kGatherLanes, "executor", always, no_workspace, nullptr},
    {OpKind::kMaxPool, "own", supports_pixels, no_workspace, run_max_pool},
    {OpKind::kMaxPoolBackward, "own", supports_pixels, no_workspace, run_max_pool_backward},
    {OpKind::kAvgPool, "own", supports_pixels, no_workspace, run_avg_pool},
    {OpKind::kAvgPoolBackward, "own", supports_pixels, no_workspace, run_avg_pool_backward},
    {OpKind::kGlobalAvgPool, "own", supports_pixels, no_workspace, run_global_avg_pool},
    {OpKind::kGlobalAvgPoolBackward,
     "own",
     supports_pixels,
     no_workspace,
     run_global_avg_pool_backward},
    {OpKind::kLocalResponseNorm,
     "own",
     supports_local_response_norm,
     no_workspace,
     run_local_response_norm},
    {OpKind::kLocalResponseNormBackward,
     "own",
     supports_local_response_norm,
     no_workspace,
     run_local_response_norm_backward},
    {OpKind::kPaddedIdentity, "own", supports_pixels, no_workspace, run_padded_identity},
    {OpKind::kPaddedIdentityBackward,
     "own",
     supports_pixels,
     no_workspace,
     run_padded_identity_backward},
    {OpKind::kSoftmaxCrossEntropy, "own", always, loss_workspace, run_softmax_cross_entropy},
    {OpKind::kBinaryCrossEntropy, "own", always, loss_workspace, run_binary_cross_entropy},
    {OpKind::kMeanSquaredError, "own", always, loss_workspace, run_mean_squared_error},
};

constexpr int kLogitsAlignment = 128;  // bytes: whole tiles of products, and of cache

}  // namespace

const OpSet& op_set() {
  static const OpSet ops = {"cuda",
                            kImplementations,
                            true,
                            kWorkspaceBytes,
                            kLogitsAlignment,
                            kMostTerms,
                            kMostUpdateGroups};
  return ops;
}

}  // namespace lockstep::cuda

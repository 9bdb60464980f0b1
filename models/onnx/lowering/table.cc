#include <map>

#include "models/onnx/lowering/layers.h"
#include "models/onnx/lowering/pointwise_functions.h"

namespace lockstep::onnx {

// The table has the ops that are not elementwise; those are in pointwise_functions.cc.
LowerNode lower_of(const Node& node) {
  static const std::map<std::string, LowerNode> kTable = {
      {"ArgMax", lower_arg_max},
      {"ArgMin", lower_arg_max},
      {"Attention", lower_attention},
      {"AveragePool", lower_pool},
      {"BatchNormalization", lower_batch_normalization},
      {"Bernoulli", lower_bernoulli},
      {"Concat", lower_concat},
      {"Conv", lower_conv},
      {"ConvTranspose", lower_conv_transpose},
      {"CumSum", lower_cum_sum},
      {"DepthToSpace", lower_depth_to_space},
      {"Dropout", lower_dropout},
      {"Einsum", lower_einsum},
      {"Expand", lower_expand},
      {"Flatten", lower_reshape},
      {"Gather", lower_gather},
      {"GatherElements", lower_gather_elements},
      {"GatherND", lower_gather_nd},
      {"Gemm", lower_gemm},
      {"GlobalAveragePool", lower_global_pool},
      {"GlobalMaxPool", lower_global_pool},
      {"GroupNormalization", lower_group_normalization},
      {"GRU", lower_recurrent},
      {"InstanceNormalization", lower_instance_normalization},
      {"LayerNormalization", lower_layer_normalization},
      {"LogSoftmax", lower_softmax},
      {"LRN", lower_local_response_norm},
      {"LSTM", lower_recurrent},
      {"MatMul", lower_mat_mul},
      {"MaxPool", lower_pool},
      {"OneHot", lower_one_hot},
      {"Pad", lower_pad},
      {"RMSNormalization", lower_rms_normalization},
      {"RandomUniform", lower_random_uniform},
      {"RandomUniformLike", lower_random_uniform},
      {"ReduceL1", lower_reduction},
      {"ReduceL2", lower_reduction},
      {"ReduceLogSum", lower_reduction},
      {"ReduceLogSumExp", lower_reduction},
      {"ReduceMax", lower_reduction},
      {"ReduceMean", lower_reduction},
      {"ReduceMin", lower_reduction},
      {"ReduceProd", lower_reduction},
      {"ReduceSum", lower_reduction},
      {"ReduceSumSquare", lower_reduction},
      {"Reshape", lower_reshape},
      {"Resize", lower_resize},
      {"RNN", lower_recurrent},
      {"RotaryEmbedding", lower_rotary_embedding},
      {"ScatterND", lower_scatter_nd},
      {"Slice", lower_slice},
      {"Softmax", lower_softmax},
      {"SpaceToDepth", lower_space_to_depth},
      {"Split", lower_split},
      {"Squeeze", lower_reshape},
      {"Tile", lower_tile},
      {"Transpose", lower_transpose},
      {"Trilu", lower_trilu},
      {"Unsqueeze", lower_reshape},
      {"Upsample", lower_resize},
  };
  if (!node.domain.empty()) return nullptr;
  const auto found = kTable.find(node.op);
  if (found != kTable.end()) return found->second;
  return pointwise_of(node.op) != nullptr ? lower_pointwise : nullptr;
}

}  // namespace lockstep::onnx

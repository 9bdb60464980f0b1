#include <map>

#include "models/onnx/lowering/layers.h"

namespace lockstep::onnx {

LowerNode lower_of(const std::string& op) {
  static const std::map<std::string, LowerNode> kTable = {
      {"Add", lower_add},
      {"AveragePool", lower_average_pool},
      {"BatchNormalization", lower_batch_normalization},
      {"Concat", lower_concat},
      {"Conv", lower_conv},
      {"Dropout", lower_dropout},
      {"Expand", lower_expand},
      {"Flatten", lower_reshape},
      {"Gather", lower_gather},
      {"Gelu", lower_activation},
      {"Gemm", lower_gemm},
      {"GlobalAveragePool", lower_global_average_pool},
      {"LayerNormalization", lower_layer_normalization},
      {"MatMul", lower_mat_mul},
      {"MaxPool", lower_max_pool},
      {"Pad", lower_pad},
      {"ReduceMean", lower_reduce_mean},
      {"Relu", lower_activation},
      {"Reshape", lower_reshape},
      {"Slice", lower_slice},
      {"Split", lower_split},
      {"Squeeze", lower_reshape},
      {"Swish", lower_activation},
      {"Tanh", lower_activation},
      {"Transpose", lower_transpose},
      {"Unsqueeze", lower_reshape},
  };
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx

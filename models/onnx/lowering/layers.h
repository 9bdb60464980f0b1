#pragma once
// The functions of nodes, by family; lowering.h says what they do.

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

// layers.cc
void lower_gemm(Lowering& lowering, const Node& node);
void lower_mat_mul(Lowering& lowering, const Node& node);
void lower_gather(Lowering& lowering, const Node& node);

// images.cc
void lower_conv(Lowering& lowering, const Node& node);
void lower_batch_normalization(Lowering& lowering, const Node& node);
void lower_max_pool(Lowering& lowering, const Node& node);
void lower_average_pool(Lowering& lowering, const Node& node);
void lower_global_average_pool(Lowering& lowering, const Node& node);
void lower_reduce_mean(Lowering& lowering, const Node& node);

// elementwise.cc
void lower_activation(Lowering& lowering, const Node& node);
void lower_add(Lowering& lowering, const Node& node);
void lower_dropout(Lowering& lowering, const Node& node);
void lower_layer_normalization(Lowering& lowering, const Node& node);

// movement.cc
void lower_reshape(Lowering& lowering, const Node& node);
void lower_transpose(Lowering& lowering, const Node& node);
void lower_slice(Lowering& lowering, const Node& node);
void lower_split(Lowering& lowering, const Node& node);
void lower_concat(Lowering& lowering, const Node& node);
void lower_pad(Lowering& lowering, const Node& node);
void lower_expand(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

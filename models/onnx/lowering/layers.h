#pragma once
// The functions that lower nodes (LowerNode in lowering.h), by the file that defines them.

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

// layers.cc
void lower_gemm(Lowering& lowering, const Node& node);
void lower_mat_mul(Lowering& lowering, const Node& node);

// products.cc
void lower_batched_gemm(Lowering& lowering, const Node& node);
void lower_batched_mat_mul(Lowering& lowering, const Node& node);
void lower_einsum(Lowering& lowering, const Node& node);

// reductions.cc
void lower_reduction(Lowering& lowering, const Node& node);
void lower_cum_sum(Lowering& lowering, const Node& node);
void lower_arg_max(Lowering& lowering, const Node& node);
void lower_global_pool(Lowering& lowering, const Node& node);
void lower_softmax(Lowering& lowering, const Node& node);

// indexing.cc
void lower_gather(Lowering& lowering, const Node& node);
void lower_gather_elements(Lowering& lowering, const Node& node);
void lower_gather_nd(Lowering& lowering, const Node& node);
void lower_one_hot(Lowering& lowering, const Node& node);
void lower_scatter_nd(Lowering& lowering, const Node& node);
void lower_tile(Lowering& lowering, const Node& node);
void lower_depth_to_space(Lowering& lowering, const Node& node);
void lower_space_to_depth(Lowering& lowering, const Node& node);
void lower_trilu(Lowering& lowering, const Node& node);

// embeddings.cc
// Lowers a Gather if its table is a matrix of parameters, and returns whether it is.
bool lower_embedding(Lowering& lowering, const Node& node);

// images.cc
void lower_conv(Lowering& lowering, const Node& node);
void lower_batch_normalization(Lowering& lowering, const Node& node);
void lower_pool(Lowering& lowering, const Node& node);

// random.cc
void lower_dropout(Lowering& lowering, const Node& node);
void lower_random_uniform(Lowering& lowering, const Node& node);
void lower_bernoulli(Lowering& lowering, const Node& node);

// rows.cc
void lower_layer_normalization(Lowering& lowering, const Node& node);
void lower_rms_normalization(Lowering& lowering, const Node& node);

// attention.cc
void lower_attention(Lowering& lowering, const Node& node);
void lower_rotary_embedding(Lowering& lowering, const Node& node);

// pointwise.cc
void lower_pointwise(Lowering& lowering, const Node& node);

// norms.cc
void lower_group_normalization(Lowering& lowering, const Node& node);
void lower_instance_normalization(Lowering& lowering, const Node& node);
void lower_local_response_norm(Lowering& lowering, const Node& node);
// If the node, a Reshape, begins a group norm as exporters write it (an instance norm between two
// reshapes, followed by gains and biases), lowers all of it and returns true.
bool lower_as_group_norm(Lowering& lowering, const Node& node);

// resizing.cc
void lower_resize(Lowering& lowering, const Node& node);

// conv_transpose.cc
void lower_conv_transpose(Lowering& lowering, const Node& node);

// recurrences.cc
void lower_recurrent(Lowering& lowering, const Node& node);

// movement.cc
void lower_reshape(Lowering& lowering, const Node& node);
void lower_transpose(Lowering& lowering, const Node& node);
void lower_slice(Lowering& lowering, const Node& node);
void lower_split(Lowering& lowering, const Node& node);
void lower_concat(Lowering& lowering, const Node& node);
void lower_pad(Lowering& lowering, const Node& node);
void lower_expand(Lowering& lowering, const Node& node);

}  // namespace lockstep::onnx

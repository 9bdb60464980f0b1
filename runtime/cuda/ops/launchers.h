#pragma once

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// What a GPU can run: one launcher per op, which unpacks the op and starts its kernels. The table
// is in op_set.cc.
const OpSet& op_set();

// Launchers of linear layers, on cuBLASLt.
size_t linear_backward_workspace(const Graph& graph, const Op& op);
void run_linear(const OpCall& call);
void run_linear_backward(const OpCall& call);

// Launchers of attention, on cuDNN or the own kernel.
bool supports_attention(const Graph& graph, const Op& op);
size_t attention_workspace(const Graph& graph, const Op& op);
void run_attention(const OpCall& call);
void run_attention_backward(const OpCall& call);

// Launchers of convolutions, on cuDNN or the own kernel.
bool supports_conv2d(const Graph& graph, const Op& op);
size_t conv2d_workspace(const Graph& graph, const Op& op);
void run_conv2d(const OpCall& call);
void run_conv2d_backward(const OpCall& call);

// Launchers of the other ops on images, on own kernels.
bool supports_image_normalize(const Graph& graph, const Op& op);
bool supports_pixels(const Graph& graph, const Op& op);
bool supports_local_response_norm(const Graph& graph, const Op& op);
size_t batch_norm_workspace(const Graph& graph, const Op& op);
void run_image_normalize(const OpCall& call);
void run_batch_norm(const OpCall& call);
void run_batch_norm_backward(const OpCall& call);
void run_batch_statistics(const OpCall& call);
void run_batch_norm_sums(const OpCall& call);
size_t batch_norm_input_gradient_workspace(const Graph& graph, const Op& op);
void run_batch_norm_input_gradient(const OpCall& call);
void run_max_pool(const OpCall& call);
void run_max_pool_backward(const OpCall& call);
void run_avg_pool(const OpCall& call);
void run_avg_pool_backward(const OpCall& call);
void run_global_avg_pool(const OpCall& call);
void run_global_avg_pool_backward(const OpCall& call);
void run_local_response_norm(const OpCall& call);
void run_local_response_norm_backward(const OpCall& call);
void run_padded_identity(const OpCall& call);
void run_padded_identity_backward(const OpCall& call);

// Launchers of the other ops, on own kernels.
bool supports_layer_norm(const Graph& graph, const Op& op);
size_t embedding_backward_workspace(const Graph& graph, const Op& op);
size_t layer_norm_backward_workspace(const Graph& graph, const Op& op);
size_t loss_workspace(const Graph& graph, const Op& op);
void run_activation(const OpCall& call);
void run_activation_backward(const OpCall& call);
void run_embedding(const OpCall& call);
void run_embedding_backward(const OpCall& call);
void run_layer_norm(const OpCall& call);
void run_layer_norm_backward(const OpCall& call);
void run_dropout(const OpCall& call);
void run_add(const OpCall& call);
void run_cast(const OpCall& call);
void run_softmax_cross_entropy(const OpCall& call);
void run_binary_cross_entropy(const OpCall& call);
void run_mean_squared_error(const OpCall& call);

}  // namespace lockstep::cuda

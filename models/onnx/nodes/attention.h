#pragma once
// Helpers for the op Attention, and for attention that exporters decompose into other ops.

#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/lowering/token_mask.h"

namespace lockstep::onnx {

// The value, with its axes transposed to this order.
TensorId in_order(Lowering& lowering, int number, const std::vector<int>& order);

// Appends attention of q (B, T, H, D), k and v (B, T, K, D) with this mask. Returns (B, T, H, D).
TensorId append_self_attention(Lowering& lowering,
                               const std::string& name,
                               const std::vector<TensorId>& by_tokens,
                               const MaskForm& mask,
                               float dropout);

// Matches decomposed attention that begins with this product: two products and a softmax,
// optionally with a scale, a mask that is causal or hides padding, and dropout. If it matches,
// appends one attention op, marks the nodes as fused and returns true.
bool lower_decomposed_attention(Lowering& lowering, const Node& product);

// The two nodes that replace NaN in a value by 0. Exporters write them after attention's softmax,
// so that a row that a mask hides completely becomes 0.
struct ZerosForNan {
  const Node* test = nullptr;    // IsNaN; null if there are no such nodes
  const Node* choice = nullptr;  // Where; its output replaces the value
};
ZerosForNan zeros_for_nan(const Readers& readers, int value);

// The scores and the mask whose sum a softmax reads, if they come from PyTorch's
// scaled_dot_product_attention. They are recognised because only PyTorch's exporters multiply both
// q and k by the square root of the scale. For floating-point masks they omit the zeros for NaN.
struct TorchScores {
  int scores = -1;  // below 0: no match
  int mask = -1;
};
TorchScores torch_scores(const Readers& readers, const Node& softmax);

}  // namespace lockstep::onnx

#pragma once
// What the node Attention and attention that is written as products and a softmax share.

#include <string>
#include <vector>

#include "models/onnx/lowering/lowering.h"
#include "models/onnx/lowering/token_mask.h"

namespace lockstep::onnx {

// The value with its axes in this order.
TensorId in_order(Lowering& lowering, int number, const std::vector<int>& order);

// Attention of q (B, T, H, D), k and v (B, T, K, D) -> (B, T, H, D) with such a mask.
TensorId append_self_attention(Lowering& lowering,
                               const std::string& name,
                               const std::vector<TensorId>& by_tokens,
                               const MaskForm& mask,
                               float dropout);

// Whether the product begins attention that is written as products and a softmax, perhaps with a scale, a
// mask that is causal or of padding, and dropout; if so all of it is appended as one op.
bool lower_written_attention(Lowering& lowering, const Node& product);

// The two nodes that put 0 for NaN in a value, as exporters write it behind attention's softmax: a row of which
// a mask hides all is then 0.
struct ZerosForNan {
  const Node* test = nullptr;    // null: there are none
  const Node* choice = nullptr;  // its output stands for the value
};
ZerosForNan zeros_for_nan(const Lowering& lowering, int value);

// The sum that a softmax reads, of scores and a mask, where it is that of PyTorch's
// scaled_dot_product_attention: its exporters alone multiply q and k each by the root of the scale. Of a mask of
// numbers they leave the zeros for NaN out.
struct TorchScores {
  int scores = -1;  // below 0: it is not
  int mask = -1;
};
TorchScores torch_scores(const Lowering& lowering, const Node& softmax);

}  // namespace lockstep::onnx

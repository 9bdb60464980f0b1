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

}  // namespace lockstep::onnx

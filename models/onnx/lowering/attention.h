#pragma once
// What the node Attention and attention that is written as products and a softmax share.

#include <string>
#include <vector>

#include "models/onnx/lowering/lowering.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep::onnx {

// The value with its axes in this order.
TensorId in_order(Lowering& lowering, int number, const std::vector<int>& order);

// What a mask, of truth values or added to scores, leaves out: nothing, what comes behind a token, or
// something else, which may be computed.
enum class MaskKind { kNone, kCausal, kOther };
MaskKind kind_of_mask(const Value& mask);

// Attention of q (B, T, H, D), k and v (B, T, K, D) -> (B, T, H, D). Of the attributes causal and dropout
// count.
TensorId append_self_attention(GraphBuilder& builder,
                               const std::string& name,
                               const std::vector<TensorId>& by_tokens,
                               AttentionAttributes attributes);

// Whether the product begins attention that is written as products and a softmax, perhaps with a scale, a
// causal mask and dropout; if so all of it is appended as one op.
bool lower_written_attention(Lowering& lowering, const Node& product);

}  // namespace lockstep::onnx

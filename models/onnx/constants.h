#pragma once
// What several stages ask of nodes and constants.

#include <optional>
#include <string_view>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Added to a score, it or less makes a softmax give nothing.
constexpr float kForgotten = -1e4f;

// Whether there is a node, and it is this op of ONNX's own.
bool is_op(const Node* node, std::string_view op);

// The number of a constant of one element.
std::optional<float> number_of(const Value& value);
// The number that each element of a constant is.
std::optional<float> filling_of(const Value& value);

}  // namespace lockstep::onnx

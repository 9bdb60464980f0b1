#pragma once
// Helpers for nodes and constants that several stages use.

#include <optional>
#include <string_view>

#include "models/onnx/network.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {

// A mask's value for positions that attention leaves out: added to a score, this or less makes the
// softmax 0.
constexpr float kForgotten = -1e4f;

// Throws ConfigError: the node's description, and what is not supported.
template <typename... Args>
[[noreturn]] void refuse(const Node& node, fmt::format_string<Args...> what, Args&&... args) {
  throw ConfigError("{}: {}", node.description(), fmt::format(what, std::forward<Args>(args)...));
}

// Whether `node` is not null and has this op of ONNX's standard domain.
bool is_op(const Node* node, std::string_view op);

// The element of a constant with one element.
std::optional<float> number_of(const Value& value);
// The value of all elements of a constant, if they are equal.
std::optional<float> filling_of(const Value& value);

}  // namespace lockstep::onnx

#include "models/onnx/read/constants.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace lockstep::onnx {

bool is_op(const Node* node, std::string_view op) {
  return node != nullptr && node->domain.empty() && node->op == op;
}

std::optional<float> number_of(const Value& value) {
  if (value.kind != ValueKind::kConstant || value.array.size() != 1) return std::nullopt;
  return value.array.as_float()[0];
}

std::optional<float> filling_of(const Value& value) {
  if (value.kind != ValueKind::kConstant) return std::nullopt;
  const std::vector<float> elements = value.array.as_float();
  if (elements.empty() ||
      std::ranges::adjacent_find(elements, std::not_equal_to<>()) != elements.end())
    return std::nullopt;
  return elements[0];
}

}  // namespace lockstep::onnx

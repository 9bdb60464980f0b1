// Random ops, which are never folded.

#include "models/onnx/rules/table.h"
#include "models/onnx/rules/types.h"

namespace lockstep::onnx {
namespace {

// Outputs: the result, and a mask of the elements that are kept. The ratio is an input from opset
// 12 on.
std::vector<Form> rule_dropout(const NodeView& node) {
  node.require_inputs(1, 3);
  node.require_floating(0);
  return {node.form(0), {ElementType::kBool, node.extents(0)}};
}

ElementType floating_type(const NodeView& node, ElementType otherwise) {
  const ElementType type = type_of_attribute(node, "dtype", otherwise);
  if (!is_floating(type))
    node.refuse("draws elements of type {}; must be floating-point, which attribute dtype may set",
                name_of(type));
  return type;
}

std::vector<Form> rule_like(const NodeView& node) {
  return {{floating_type(node, node.type(0)), node.extents(0)}};
}

std::vector<Form> rule_of_shape(const NodeView& node) {
  return {{floating_type(node, ElementType::kFloat), node.node().integers("shape")}};
}

std::vector<Form> rule_bernoulli(const NodeView& node) {
  node.require_floating(0);
  return {{type_of_attribute(node, "dtype", node.type(0)), node.extents(0)}};
}

constexpr Op kOps[] = {
    {"Dropout", rule_dropout},
    {"RandomUniformLike", rule_like},
    {"RandomNormalLike", rule_like},
    {"RandomUniform", rule_of_shape},
    {"RandomNormal", rule_of_shape},
    {"Bernoulli", rule_bernoulli},
};

}  // namespace

std::span<const Op> random_ops() { return kOps; }

}  // namespace lockstep::onnx

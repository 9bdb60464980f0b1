#pragma once
// Attributes that name an element type by ONNX's number.

#include <string>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// The type that the attribute names, or `otherwise` where there is none. Refuses types that arrays do not have.
ElementType type_of_attribute(const NodeView& node,
                              const std::string& attribute,
                              ElementType otherwise);

}  // namespace lockstep::onnx

#pragma once
// Attributes that hold ONNX's number of an element type.

#include <string>

#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// The type of the attribute, or `otherwise` if it is absent. Rejects unsupported types.
ElementType type_of_attribute(const NodeView& node,
                              const std::string& attribute,
                              ElementType otherwise);

}  // namespace lockstep::onnx

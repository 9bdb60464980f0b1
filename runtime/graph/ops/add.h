#pragma once
// add: y = a + b. inputs a, b; outputs y. Its gradient is passed through to both.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

namespace ops {

// a + b, same shape.
TensorId add(GraphBuilder& builder, const std::string& name, TensorId a, TensorId b);

}  // namespace ops
}  // namespace lockstep

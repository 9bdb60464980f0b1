#pragma once
// add: y = a + b. inputs a, b; outputs y. The gradient of y is also the gradient of a and of b.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

namespace ops {

// a + b, same shape.
TensorId add(GraphBuilder& builder, const std::string& name, TensorId a, TensorId b);

}  // namespace ops

template <typename T>
struct Add {
  int64_t n;
  const T *a, *b;  // (n)
  T* y;            // (n). May be a or b

  static Add of(const OpCall& op) {
    return {.n = op.input_shape(0).elements(),
            .a = op.input<T>(0),
            .b = op.input<T>(1),
            .y = op.output<T>(0)};
  }
};

}  // namespace lockstep

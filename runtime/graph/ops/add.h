#pragma once
// add: y = a + b. The gradient of y is also the gradient of a and of b.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class AddIn : InputIndex { kA, kB };
enum class AddOut : OutputIndex { kY };

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
    return {.n = op.input_shape(AddIn::kA).elements(),
            .a = op.input<T>(AddIn::kA),
            .b = op.input<T>(AddIn::kB),
            .y = op.output<T>(AddOut::kY)};
  }
};

}  // namespace lockstep::graph

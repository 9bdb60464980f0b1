#pragma once
// add: y = a + b. The gradient of y is also the gradient of a and of b.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class AddIn : InputIndex { kA, kB };
enum class AddOut : OutputIndex { kY };

namespace ops {

// a + b, same shape.
TensorId add(GraphBuilder& builder, const std::string& name, TensorId a, TensorId b);

}  // namespace ops

template <typename T>
struct Add {
  const OpCall& call = OpCall::none();
  int64_t n = call.input_shape(AddIn::kA).elements();
  const T *a = call.input<T>(AddIn::kA), *b = call.input<T>(AddIn::kB);  // (n)
  T* y = call.output<T>(AddOut::kY);                                     // (n). May be a or b
};

}  // namespace lockstep::graph

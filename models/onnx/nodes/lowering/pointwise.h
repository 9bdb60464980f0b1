#pragma once
// Elementwise nodes as programs of the native op `pointwise`.

#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/layouts.h"

namespace lockstep::onnx {

class Lowering;

// Lowers an elementwise node: defers its output.
void lower_pointwise(Lowering& lowering, const Node& node);

// Appends the program of a deferred value and returns its tensor.
TensorId append_pointwise(graph::GraphBuilder& builder,
                          const Readers& readers,
                          Layouts& layouts,
                          int number,
                          const DeferredPointwise& what);

// ... f_1(f_0(x)) for each element; x itself if there are no functions.
TensorId append_functions(graph::GraphBuilder& builder,
                          const std::string& name,
                          TensorId x,
                          const std::vector<graph::PointwiseFunction>& functions);
// f(a, b), broadcast against each other.
TensorId append_function(graph::GraphBuilder& builder,
                         const std::string& name,
                         graph::PointwiseFunction function,
                         TensorId a,
                         TensorId b);
TensorId append_squares(graph::GraphBuilder& builder, const std::string& name, TensorId x);

}  // namespace lockstep::onnx

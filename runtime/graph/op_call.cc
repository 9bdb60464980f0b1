#include "runtime/graph/op_call.h"

#include "runtime/graph/graph.h"

namespace lockstep::graph {

const OpCall& OpCall::none() {
  static const Graph graph;
  static const Op op{};
  static const OpCall call(graph, op);
  return call;
}

OpKind OpCall::kind() const { return op_.kind; }
TensorId OpCall::input_id(InputName name) const { return op_.inputs[name]; }
TensorId OpCall::output_id(OutputName name) const { return op_.outputs[name]; }
const Attributes& OpCall::all_attributes() const { return op_.attributes; }

const Shape& OpCall::input_shape(InputName name) const { return graph_.shape(op_.inputs[name]); }
const Shape& OpCall::output_shape(OutputName name) const { return graph_.shape(op_.outputs[name]); }
DType OpCall::input_dtype(InputName name) const { return graph_[op_.inputs[name]].dtype; }
DType OpCall::output_dtype(OutputName name) const { return graph_[op_.outputs[name]].dtype; }
int64_t OpCall::input_stride(InputName name) const { return graph_[op_.inputs[name]].row_stride(); }
int64_t OpCall::output_stride(OutputName name) const {
  return graph_[op_.outputs[name]].row_stride();
}
bool OpCall::training() const { return graph_.purpose == Purpose::kTraining; }
bool OpCall::bf16x3() const { return graph_.bf16x3; }

}  // namespace lockstep::graph

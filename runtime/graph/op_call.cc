#include "runtime/graph/op_call.h"

#include "runtime/graph/graph.h"

namespace lockstep {
namespace {

TensorId id_at(const std::vector<TensorId>& ids, size_t index) {
  return index < ids.size() ? ids[index] : kNoTensor;
}

}  // namespace

OpKind OpCall::kind() const { return op_.kind; }
TensorId OpCall::input_id(size_t index) const { return id_at(op_.inputs, index); }
TensorId OpCall::output_id(size_t index) const { return id_at(op_.outputs, index); }
const Attributes& OpCall::all_attributes() const { return op_.attributes; }

const Shape& OpCall::input_shape(size_t index) const { return graph_.shape(op_.inputs[index]); }
const Shape& OpCall::output_shape(size_t index) const { return graph_.shape(op_.outputs[index]); }
DType OpCall::input_dtype(size_t index) const { return graph_[op_.inputs[index]].dtype; }
DType OpCall::output_dtype(size_t index) const { return graph_[op_.outputs[index]].dtype; }
int64_t OpCall::input_stride(size_t index) const { return graph_[op_.inputs[index]].row_stride(); }
int64_t OpCall::output_stride(size_t index) const {
  return graph_[op_.outputs[index]].row_stride();
}
bool OpCall::training() const { return graph_.purpose == Purpose::kTraining; }
bool OpCall::bf16x3() const { return graph_.bf16x3; }

}  // namespace lockstep

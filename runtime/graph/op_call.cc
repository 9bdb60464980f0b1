#include "runtime/graph/op_call.h"

#include "runtime/graph/graph.h"

namespace lockstep {
namespace {

TensorId id_at(const std::vector<TensorId>& ids, size_t place) {
  return place < ids.size() ? ids[place] : kNoTensor;
}

}  // namespace

OpKind OpCall::kind() const { return op_.kind; }
TensorId OpCall::input_id(size_t place) const { return id_at(op_.inputs, place); }
TensorId OpCall::output_id(size_t place) const { return id_at(op_.outputs, place); }
const Attributes& OpCall::all_attributes() const { return op_.attributes; }

const Shape& OpCall::input_shape(size_t place) const { return graph_.shape(op_.inputs[place]); }
const Shape& OpCall::output_shape(size_t place) const { return graph_.shape(op_.outputs[place]); }
DType OpCall::input_dtype(size_t place) const { return graph_[op_.inputs[place]].dtype; }
DType OpCall::output_dtype(size_t place) const { return graph_[op_.outputs[place]].dtype; }
int64_t OpCall::input_stride(size_t place) const { return graph_[op_.inputs[place]].row_stride(); }
int64_t OpCall::output_stride(size_t place) const {
  return graph_[op_.outputs[place]].row_stride();
}
bool OpCall::training() const { return graph_.purpose == Purpose::kTraining; }
bool OpCall::bf16x3() const { return graph_.bf16x3; }

}  // namespace lockstep

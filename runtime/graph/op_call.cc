#include "runtime/graph/op_call.h"

#include <algorithm>

#include "runtime/graph/graph.h"

namespace lockstep::graph {
namespace {

bool has_16_bits(DType type) { return type == DType::kBF16 || type == DType::kF16; }

}  // namespace

const OpCall& OpCall::none() {
  static const Graph graph;
  static const Op op{};
  static const OpCall call(graph, op);
  return call;
}

OpCall OpCall::on_floats(std::span<const FloatCopy> copies, std::byte* workspace) const {
  OpCall call = *this;
  call.on_floats_ = true;
  call.copies_ = copies;
  call.workspace_ = workspace;
  return call;
}

std::byte* OpCall::copy_of(TensorId id) const {
  std::byte* const own = tensors_[id];
  if (!has_16_bits(graph_[id].dtype)) return own;
  const auto found = std::ranges::find(copies_, own, &FloatCopy::of);
  return found == copies_.end() ? own : found->floats;
}

DType OpCall::dtype_of(TensorId id) const {
  const DType stored = graph_[id].dtype;
  return on_floats_ && has_16_bits(stored) ? DType::kF32 : stored;
}

size_t OpCall::arrays() const { return op_.inputs.size() + op_.outputs.size(); }
bool OpCall::is_input(size_t i) const { return i < op_.inputs.size(); }
OperandArray OpCall::array(size_t i) const {
  const TensorId id = is_input(i) ? op_.inputs.at(i) : op_.outputs.at(i - op_.inputs.size());
  if (id == kNoTensor) return {DType::kF32, 0, nullptr};
  const DType stored = graph_[id].dtype;
  return {dtype_of(id), static_cast<int64_t>(graph_[id].bytes() / size_of(stored)), pointer(id)};
}

OpKind OpCall::kind() const { return op_.kind; }
TensorId OpCall::input_id(InputName name) const { return op_.inputs[name]; }
TensorId OpCall::output_id(OutputName name) const { return op_.outputs[name]; }
const Attributes& OpCall::all_attributes() const { return op_.attributes; }

const Shape& OpCall::input_shape(InputName name) const { return graph_.shape(op_.inputs[name]); }
const Shape& OpCall::output_shape(OutputName name) const { return graph_.shape(op_.outputs[name]); }
DType OpCall::input_dtype(InputName name) const { return dtype_of(op_.inputs[name]); }
DType OpCall::output_dtype(OutputName name) const { return dtype_of(op_.outputs[name]); }
int64_t OpCall::input_stride(InputName name) const { return graph_[op_.inputs[name]].row_stride(); }
int64_t OpCall::output_stride(OutputName name) const {
  return graph_[op_.outputs[name]].row_stride();
}
int64_t OpCall::input_rows(InputName name) const { return graph_[op_.inputs[name]].memory_rows(); }
bool OpCall::training() const { return graph_.purpose == Purpose::kTraining; }
bool OpCall::bf16x3() const { return graph_.bf16x3; }

}  // namespace lockstep::graph

#include "runtime/graph/ops/gather.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// The sizes of x around dimension `axis`, which is made non-negative. Checks what both kinds
// require.
GatherSizes sizes_of(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int& axis) {
  const Tensor& tensor = builder[x];
  const int rank = tensor.shape.rank();
  LOCKSTEP_CHECK(
      tensor.role != Role::kParameter && tensor.padded_columns == 0, "{}: {} ", name, tensor.name);
  LOCKSTEP_CHECK(builder[indices].dtype == DType::kI32,
                 "{}: indices of {} ",
                 name,
                 lockstep::name_of(builder[indices].dtype));
  LOCKSTEP_CHECK(axis >= -rank && axis < rank, "{}: dimension {} ", name, axis);
  if (axis < 0) axis += rank;
  GatherSizes sizes;
  for (int d = 0; d < axis; ++d) sizes.outer *= tensor.shape[d];
  sizes.extent = tensor.shape[axis];
  for (int d = axis + 1; d < rank; ++d) sizes.inner *= tensor.shape[d];
  LOCKSTEP_CHECK(sizes.extent > 0 || builder.shape(indices).elements() == 0,
                 "{}: indices into nothing ",
                 name);
  return sizes;
}

TensorId append_gather(GraphBuilder& builder,
                       OpKind kind,
                       const std::string& name,
                       TensorId x,
                       TensorId indices,
                       const Shape& shape,
                       const GatherSizes& sizes) {
  const TensorId y = builder.tensor(name, shape, builder[x].dtype, Role::kActivation);
  builder.append({kind, name, {x, indices}, {y}, sizes});
  return y;
}

}  // namespace

TensorId ops::gather(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int axis) {
  GatherSizes sizes = sizes_of(builder, name, x, indices, axis);
  const Shape x_shape = builder.shape(x), index_shape = builder.shape(indices);
  sizes.count = index_shape.elements();
  Shape shape;
  for (int d = 0; d < axis; ++d) shape.append(x_shape[d]);
  for (int d = 0; d < index_shape.rank(); ++d) shape.append(index_shape[d]);
  for (int d = axis + 1; d < x_shape.rank(); ++d) shape.append(x_shape[d]);
  return append_gather(builder, OpKind::kGather, name, x, indices, shape, sizes);
}

TensorId ops::gather_elements(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int axis) {
  GatherSizes sizes = sizes_of(builder, name, x, indices, axis);
  const Shape x_shape = builder.shape(x), shape = builder.shape(indices);
  bool same = x_shape.rank() == shape.rank();
  for (int d = 0; same && d < shape.rank(); ++d) same = d == axis || shape[d] == x_shape[d];
  LOCKSTEP_CHECK(same, "{}: indices {} into {} ", name, to_string(shape), to_string(x_shape));
  sizes.count = shape[axis];
  return append_gather(builder, OpKind::kGatherElements, name, x, indices, shape, sizes);
}

namespace {

template <OpKind kBackward>
OpInputs gather_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId x = op.inputs[GatherIn::kX];
  if (builder.graph()[x].dtype == DType::kI32 || !builder.needs_gradient(x))
    return {kNoTensor, kNoTensor};
  return first_input_gradient(
      builder, op, kBackward, {d_outputs[GatherOut::kY], op.inputs[GatherIn::kIndices]});
}

}  // namespace

const OpSchema kGatherSchema = {gather_gradient<OpKind::kGatherBackward>, elementwise_flops<0>, {}};
const OpSchema kGatherBackwardSchema = {nullptr, elementwise_flops<1>, {}};
const OpSchema kGatherElementsSchema = {
    gather_gradient<OpKind::kGatherElementsBackward>, elementwise_flops<0>, {}};
const OpSchema kGatherElementsBackwardSchema = {nullptr, elementwise_flops<1>, {}};

}  // namespace lockstep::graph

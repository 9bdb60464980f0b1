#include "runtime/graph/ops/concat.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// The extents of x, with another extent along `axis`.
Shape with_extent(const Shape& x, int axis, int64_t extent) {
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) shape.append(d == axis ? extent : x[d]);
  return shape;
}

void check_input(
    GraphBuilder& builder, const std::string& name, TensorId first, TensorId input, int axis) {
  const Tensor &x = builder[input], &other = builder[first];
  const int64_t extent = x.shape.rank() == other.shape.rank() ? x.shape[axis] : 0;
  LOCKSTEP_CHECK(x.dtype == other.dtype && x.shape == with_extent(other.shape, axis, extent),
                 "{}: {} {} behind {} {} ",
                 name,
                 lockstep::name_of(x.dtype),
                 to_string(x.shape),
                 lockstep::name_of(other.dtype),
                 to_string(other.shape));
  LOCKSTEP_CHECK(is_movable(x.dtype) && x.role != Role::kParameter && x.padded_columns == 0,
                 "{}: {} ",
                 name,
                 x.name);
}

}  // namespace

TensorId ops::concat(GraphBuilder& builder,
                     const std::string& name,
                     const std::vector<TensorId>& parts,
                     int axis) {
  LOCKSTEP_CHECK(!parts.empty() && parts.size() <= size_t{kMaxConcatInputs},
                 "{}: {} tensors ",
                 name,
                 parts.size());
  const TensorId like = parts.front();
  const Shape first = builder.shape(like);
  const int dimension = axis < 0 ? axis + first.rank() : axis;
  LOCKSTEP_CHECK(dimension >= 0 && dimension < first.rank(), "{}: dimension {} ", name, axis);
  ConcatAttributes sizes;
  int64_t inner = 1, extent = 0;
  for (int d = 0; d < first.rank(); ++d) {
    if (d < dimension) sizes.rows *= first[d];
    if (d > dimension) inner *= first[d];
  }
  for (const TensorId input : parts) {
    check_input(builder, name, like, input, dimension);
    extent += builder.shape(input)[dimension];
    sizes.ends[static_cast<size_t>(sizes.count++)] = extent * inner;
  }
  const TensorId y = builder.tensor(
      name, with_extent(first, dimension, extent), builder[like].dtype, Role::kActivation);
  builder.append({OpKind::kConcat, name, parts, {y}, sizes});
  return y;
}

namespace {

OpInputs concat_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  std::vector<TensorId> d_inputs(op.inputs.size(), kNoTensor);
  bool any = false;
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    const TensorId x = op.inputs.at(k);
    if (builder.graph()[x].dtype == DType::kI32 || !builder.needs_gradient(x)) continue;
    d_inputs[k] = builder.new_gradient(x);
    any = true;
  }
  if (any)
    builder.append(
        {OpKind::kConcatBackward, op.name, {d_outputs[ConcatOut::kY]}, d_inputs, op.attributes});
  return d_inputs;
}

}  // namespace

const OpSchema kConcatSchema = {concat_gradient, elementwise_flops<0>, {}};
const OpSchema kConcatBackwardSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep::graph

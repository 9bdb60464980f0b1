#include "runtime/graph/ops/rearrange.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

namespace {

void check_input(GraphBuilder& builder, const std::string& name, TensorId x) {
  const Tensor& tensor = builder[x];
  LOCKSTEP_CHECK(is_movable(tensor.dtype) && tensor.padded_columns == 0,
                 "{}: {} of {}, rows padded to {} ",
                 name,
                 tensor.name,
                 lockstep::name_of(tensor.dtype),
                 tensor.padded_columns);
}

TensorId append_reshape(GraphBuilder& builder,
                        const std::string& name,
                        TensorId x,
                        const Shape& shape) {
  check_input(builder, name, x);
  const TensorId y = builder.tensor(name, shape, builder[x].dtype, Role::kActivation);
  builder.append({OpKind::kReshape, name, {x}, {y}, {}});
  return y;
}

// y of `shape` has the elements of the view in order.
TensorId append_rearrange(GraphBuilder& builder,
                          const std::string& name,
                          TensorId x,
                          const Shape& shape,
                          const RearrangeAttributes& attributes) {
  check_input(builder, name, x);
  LOCKSTEP_CHECK(attributes.views.view.elements() == shape.elements());
  const TensorId y = builder.tensor(name, shape, builder[x].dtype, Role::kActivation);
  builder.append({OpKind::kRearrange, name, {x}, {y}, attributes});
  return y;
}

TensorId append_view(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     const Shape& shape,
                     const RearrangeAttributes& attributes) {
  if (attributes.views.view.is_copy(builder.shape(x)))
    return append_reshape(builder, name, x, shape);
  return append_rearrange(builder, name, x, shape, attributes);
}

void check_rank(const std::string& name, const Shape& x, size_t given) {
  LOCKSTEP_CHECK(static_cast<size_t>(x.rank()) == given,
                 "{}: {} numbers for the dimensions of x {} ",
                 name,
                 given,
                 to_string(x));
}

RearrangeAttributes view_of(const Shape& x, const std::vector<ViewAxis>& axes, float fill) {
  return {make_view(x, axes, fill), axes};
}

ViewAxis repeated_axis(int64_t extent) {
  return {.source = ViewAxis::kNone, .extent = extent, .begin = 0, .end = extent};
}

}  // namespace

TensorId ops::rearrange(GraphBuilder& builder,
                        const std::string& name,
                        TensorId x,
                        const std::vector<ViewAxis>& axes,
                        float fill) {
  Shape shape;
  for (const ViewAxis& axis : axes) shape.append(axis.extent);
  return append_rearrange(builder, name, x, shape, view_of(builder.shape(x), axes, fill));
}

TensorId ops::select(
    GraphBuilder& builder, const std::string& name, TensorId x, int axis, int64_t index) {
  const Shape x_shape = builder.shape(x);
  LOCKSTEP_CHECK(axis < x_shape.rank() && index < x_shape[axis],
                 "{}: index {} of dimension {} of {} ",
                 name,
                 index,
                 axis,
                 to_string(x_shape));
  std::vector<ViewAxis> axes;
  Shape shape;
  for (int d = 0; d < x_shape.rank(); ++d) {
    axes.push_back(ViewAxis::first(d, d == axis ? 1 : x_shape[d]));
    if (d != axis) shape.append(x_shape[d]);
  }
  axes[static_cast<size_t>(axis)].start = index;
  return append_rearrange(builder, name, x, shape, view_of(x_shape, axes, 0));
}

TensorId ops::transpose(GraphBuilder& builder,
                        const std::string& name,
                        TensorId x,
                        const std::vector<int>& permutation) {
  const Shape x_shape = builder.shape(x);
  check_rank(name, x_shape, permutation.size());
  std::vector<ViewAxis> axes;
  Shape shape;
  for (const int source : permutation) {
    LOCKSTEP_CHECK(source >= 0 && source < x_shape.rank(), "{}: dimension {} ", name, source);
    axes.push_back(ViewAxis::first(source, x_shape[source]));
    shape.append(x_shape[source]);
  }
  return append_view(builder, name, x, shape, view_of(x_shape, axes, 0));
}

TensorId ops::reshape(GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      const Shape& shape) {
  LOCKSTEP_CHECK(builder.shape(x).elements() == shape.elements(),
                 "{}: {} as {} ",
                 name,
                 to_string(builder.shape(x)),
                 to_string(shape));
  return append_reshape(builder, name, x, shape);
}

TensorId ops::slice(GraphBuilder& builder,
                    const std::string& name,
                    TensorId x,
                    const std::vector<int64_t>& starts,
                    const std::vector<int64_t>& steps,
                    const Shape& extents) {
  const Shape x_shape = builder.shape(x);
  for (const size_t given : {starts.size(), steps.size(), static_cast<size_t>(extents.rank())})
    check_rank(name, x_shape, given);
  std::vector<ViewAxis> axes;
  for (int d = 0; d < x_shape.rank(); ++d) {
    const auto k = static_cast<size_t>(d);
    const int64_t last = starts[k] + (extents[d] - 1) * steps[k];
    const auto within = [&](int64_t index) { return index >= 0 && index < x_shape[d]; };
    LOCKSTEP_CHECK(steps[k] != 0 && (extents[d] == 0 || (within(starts[k]) && within(last))),
                   "{}: from {} {} elements by steps of {} of dimension {} of {} ",
                   name,
                   starts[k],
                   extents[d],
                   steps[k],
                   d,
                   to_string(x_shape));
    ViewAxis axis = ViewAxis::first(d, extents[d]);
    axis.start = starts[k];
    axis.move = steps[k];
    axes.push_back(axis);
  }
  return append_view(builder, name, x, extents, view_of(x_shape, axes, 0));
}

TensorId ops::expand(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     const Shape& shape) {
  const Shape x_shape = builder.shape(x);
  const int before = shape.rank() - x_shape.rank();
  LOCKSTEP_CHECK(before >= 0, "{}: {} as {} ", name, to_string(x_shape), to_string(shape));
  std::vector<ViewAxis> axes;
  for (int d = 0; d < shape.rank(); ++d) {
    const int source = d - before;
    const int64_t extent = source < 0 ? 1 : x_shape[source];
    LOCKSTEP_CHECK(extent == 1 || extent == shape[d],
                   "{}: {} as {} ",
                   name,
                   to_string(x_shape),
                   to_string(shape));
    if (extent != shape[d]) axes.push_back(repeated_axis(shape[d]));
    if (source >= 0) axes.push_back(ViewAxis::first(source, extent));
    if (source < 0 && shape[d] == 1) axes.push_back(repeated_axis(1));
  }
  return append_view(builder, name, x, shape, view_of(x_shape, axes, 0));
}

TensorId ops::tile(GraphBuilder& builder,
                   const std::string& name,
                   TensorId x,
                   const std::vector<int64_t>& repeats) {
  const Shape x_shape = builder.shape(x);
  check_rank(name, x_shape, repeats.size());
  std::vector<ViewAxis> axes;
  Shape shape;
  for (int d = 0; d < x_shape.rank(); ++d) {
    const int64_t times = repeats[static_cast<size_t>(d)];
    LOCKSTEP_CHECK(times >= 0, "{}: {} times ", name, times);
    axes.push_back(repeated_axis(times));
    axes.push_back(ViewAxis::first(d, x_shape[d]));
    shape.append(times * x_shape[d]);
  }
  return append_view(builder, name, x, shape, view_of(x_shape, axes, 0));
}

TensorId ops::pad(GraphBuilder& builder,
                  const std::string& name,
                  TensorId x,
                  const std::vector<int64_t>& before,
                  const std::vector<int64_t>& after,
                  float value) {
  const Shape x_shape = builder.shape(x);
  check_rank(name, x_shape, before.size());
  check_rank(name, x_shape, after.size());
  LOCKSTEP_CHECK(builder[x].dtype != DType::kI32 || std::trunc(value) == value,
                 "{}: {} around whole numbers ",
                 name,
                 value);
  std::vector<ViewAxis> axes;
  Shape shape;
  for (int d = 0; d < x_shape.rank(); ++d) {
    const int64_t first = before[static_cast<size_t>(d)], last = after[static_cast<size_t>(d)];
    const int64_t extent = first + x_shape[d] + last;
    LOCKSTEP_CHECK(extent >= 0, "{}: {} + {} + {} elements ", name, first, x_shape[d], last);
    const int64_t begin = std::clamp<int64_t>(first, 0, extent);
    const int64_t end = std::clamp<int64_t>(first + x_shape[d], begin, extent);
    axes.push_back({d, extent, begin, end, begin - first, 1});
    shape.append(extent);
  }
  return append_view(builder, name, x, shape, view_of(x_shape, axes, value));
}

TensorId ops::copy_parameter(GraphBuilder& builder, const std::string& name, TensorId parameter) {
  return append_reshape(builder, name, parameter, builder.shape(parameter));
}

namespace {

// The gradient of x by the inverse of a view.
TensorId append_inverse(GradientBuilder& builder,
                        const Op& op,
                        TensorId d_y,
                        const View& inverse,
                        const ViewTerms& terms) {
  const TensorId x = op.inputs[RearrangeIn::kX];
  const Tensor& tensor = builder.graph()[x];
  if (tensor.dtype == DType::kI32 || !builder.needs_gradient(x) || d_y == kNoTensor)
    return kNoTensor;
  if (tensor.role == Role::kParameter) {
    const auto [d_x, accumulate] = builder.parameter_gradient(x);
    if (d_x != kNoTensor)
      builder.append({OpKind::kRearrangeBackward,
                      op.name,
                      {d_y},
                      {d_x},
                      RearrangeBackwardAttributes{inverse, terms, accumulate}});
    return kNoTensor;
  }
  const TensorId d_x = builder.new_gradient(x);
  if (terms.rank > 0) {
    builder.append({OpKind::kRearrangeBackward,
                    op.name,
                    {d_y},
                    {d_x},
                    RearrangeBackwardAttributes{inverse, terms, false}});
  } else {
    ViewAndInverse views;  // only the view is used
    views.view = inverse;
    builder.append({OpKind::kRearrange, op.name, {d_y}, {d_x}, RearrangeAttributes{views}});
  }
  return d_x;
}

OpInputs rearrange_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const ViewAndInverse& views = op.as<RearrangeAttributes>().views;
  return {append_inverse(builder, op, d_outputs[RearrangeOut::kY], views.inverse, views.terms)};
}

OpInputs reshape_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  const TensorId x = op.inputs[RearrangeIn::kX];
  if (builder.graph()[x].role == Role::kParameter) {
    const int64_t n = builder.graph().shape(x).elements();
    const View all = make_view({n}, {ViewAxis::first(0, n)}, 0).view;
    return {append_inverse(builder, op, d_outputs[RearrangeOut::kY], all, {})};
  }
  if (builder.graph()[x].dtype == DType::kI32 || !builder.needs_gradient(x)) return {kNoTensor};
  const TensorId d_x = builder.new_gradient(x);
  builder.append({OpKind::kReshape, op.name, {d_outputs[RearrangeOut::kY]}, {d_x}, {}});
  return {d_x};
}

}  // namespace

const OpSchema kRearrangeSchema = {rearrange_gradient, elementwise_flops<0>, {}};
const OpSchema kReshapeSchema = {
    reshape_gradient, elementwise_flops<0>, {{RearrangeOut::kY, RearrangeIn::kX}}};
const OpSchema kRearrangeBackwardSchema = {nullptr, elementwise_flops<1>, {}};

}  // namespace lockstep::graph

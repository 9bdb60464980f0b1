#include "runtime/graph/ops/reduce.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

bool is_reduced(uint32_t reduced, int dimension) { return (reduced >> dimension & 1u) != 0; }

// Adds an outer dimension; the order is reversed at the end.
void add_outer(ReduceDimensions& to, int64_t extent, int64_t stride) {
  to.count *= extent;
  if (extent == 1) return;
  if (to.rank > 0 && stride == to.strides[to.rank - 1] * to.extents[to.rank - 1]) {
    to.extents[to.rank - 1] *= extent;
    return;
  }
  to.extents[to.rank] = extent;
  to.strides[to.rank++] = stride;
}

void finish(ReduceDimensions& dimensions) {
  if (dimensions.rank == 0) {
    dimensions.rank = 1;
    dimensions.extents[0] = dimensions.count;  // 1, or 0 if x is empty
    dimensions.strides[0] = 1;
  }
  std::reverse(dimensions.extents, dimensions.extents + dimensions.rank);
  std::reverse(dimensions.strides, dimensions.strides + dimensions.rank);
}

}  // namespace

ReduceLoops ReduceLoops::of(const Shape& x, uint32_t reduced) {
  ReduceLoops loops;
  int64_t stride = 1;
  for (int d = x.rank() - 1; d >= 0; --d) {
    add_outer(is_reduced(reduced, d) ? loops.reduced : loops.kept, x[d], stride);
    stride *= x[d];
  }
  finish(loops.kept);
  finish(loops.reduced);
  return loops;
}

TensorId ops::reduce(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     ReduceKind kind,
                     const std::vector<int>& axes,
                     bool keep_dims) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(builder[x].role != Role::kParameter, "{}: a parameter as input ", name);
  LOCKSTEP_CHECK(builder[x].padded_columns == 0, "{}: an input of padded rows ", name);
  ReduceAttributes attributes{kind, shape, 0};
  for (const int axis : axes) {
    const int dimension = axis < 0 ? axis + shape.rank() : axis;
    LOCKSTEP_CHECK(dimension >= 0 && dimension < shape.rank(), "{}: axis {} ", name, axis);
    LOCKSTEP_CHECK(!is_reduced(attributes.reduced, dimension), "{}: axis {} twice ", name, axis);
    attributes.reduced |= 1u << dimension;
  }
  Shape y_shape;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!is_reduced(attributes.reduced, d)) {
      y_shape.append(shape[d]);
    } else if (keep_dims) {
      y_shape.append(1);
    }
  }
  const TensorId y = builder.tensor(name, y_shape, builder[x].dtype, Role::kActivation);
  builder.append({OpKind::kReduce, name, {x}, {y}, attributes});
  return y;
}

TensorId append_broadcast_sum(GradientBuilder& builder,
                              const std::string& name,
                              TensorId d,
                              const Shape& x_shape,
                              TensorId x) {
  const Shape& shape = builder.graph().shape(d);
  ReduceAttributes attributes{ReduceKind::kSum, shape, 0};
  for (int dimension = 0; dimension < shape.rank(); ++dimension) {
    const int axis = dimension - (shape.rank() - x_shape.rank());
    if (axis < 0 || (x_shape[axis] == 1 && shape[dimension] != 1))
      attributes.reduced |= 1u << dimension;
  }
  const TensorId d_x = builder.new_gradient(x);
  builder.append({OpKind::kReduce, name, {d}, {d_x}, attributes});
  return d_x;
}

namespace {

using F = PointwiseFunction;

// The tensors of a gradient: x as it is read, and those in the shape of y with the rank of x, with
// extent 1 in dimensions that are reduced.
struct ReduceRule {
  GradientBuilder& builder;
  const Op& op;
  const ReduceAttributes& attributes;

  PointwiseInput x() const { return {op.inputs[ReduceIn::kX], attributes.x_shape}; }
  PointwiseInput reduced(TensorId tensor) const {
    Shape shape;
    for (int d = 0; d < attributes.x_shape.rank(); ++d)
      shape.append(is_reduced(attributes.reduced, d) ? 1 : attributes.x_shape[d]);
    return {tensor, shape};
  }
  // Applies `program` to x and reduces the result by `kind`.
  TensorId reduction_of(const PointwiseProgram& program, ReduceKind kind) const {
    const TensorId terms = builder.new_statistics(op.name + " terms", attributes.x_shape);
    builder.append(
        pointwise_op(op.name, {x(), reduced(op.outputs[ReduceOut::kY])}, program, terms));
    const TensorId sum = builder.new_statistics(op.name + " of terms",
                                                builder.graph().shape(op.outputs[ReduceOut::kY]));
    builder.append({OpKind::kReduce,
                    op.name,
                    {terms},
                    {sum},
                    ReduceAttributes{kind, attributes.x_shape, attributes.reduced}});
    return sum;
  }
  TensorId gradient(const PointwiseProgram& program,
                    const std::vector<PointwiseInput>& inputs) const {
    const TensorId d_x = builder.new_gradient(op.inputs[ReduceIn::kX]);
    builder.append(pointwise_op(op.name, inputs, program, d_x));
    return d_x;
  }
};

TensorId sum_gradient(const ReduceRule& rule, TensorId d_y) {
  PointwiseProgram program;
  const int d = program.input(0);
  if (rule.attributes.kind == ReduceKind::kMean) {
    const auto loops = ReduceLoops::of(rule.attributes.x_shape, rule.attributes.reduced);
    program.append(F::kMul, d, program.constant(1.0f / static_cast<float>(loops.reduced.count)));
  }
  return rule.gradient(program, {rule.reduced(d_y)});
}

TensorId extreme_gradient(const ReduceRule& rule, TensorId d_y) {
  PointwiseProgram equal;
  equal.append(F::kEqual, equal.input(0), equal.input(1));
  const TensorId ties = rule.reduction_of(equal, ReduceKind::kSum);
  PointwiseProgram program;  // inputs d_y, x, y, ties
  const int is_equal = program.append(F::kEqual, program.input(1), program.input(2));
  const int share = program.append(F::kDiv, program.input(0), program.input(3));
  program.append(F::kWhere, is_equal, share, program.constant(0));
  return rule.gradient(program,
                       {rule.reduced(d_y),
                        rule.x(),
                        rule.reduced(rule.op.outputs[ReduceOut::kY]),
                        rule.reduced(ties)});
}

// With p the product of the elements that are not zero: without zeros the gradient is p / x. With
// one zero it is p there and 0 elsewhere. With more zeros it is 0.
TensorId product_gradient(const ReduceRule& rule, TensorId d_y) {
  PointwiseProgram is_zero, others;
  is_zero.append(F::kEqual, is_zero.input(0), is_zero.constant(0));
  const int zero_here = others.append(F::kEqual, others.input(0), others.constant(0));
  others.append(F::kWhere, zero_here, others.constant(1), others.input(0));
  const TensorId zeros = rule.reduction_of(is_zero, ReduceKind::kSum);
  const TensorId product = rule.reduction_of(others, ReduceKind::kProduct);

  PointwiseProgram program;  // inputs d_y, x, zeros, product
  const int x = program.input(1), count = program.input(2), p = program.input(3);
  const int here = program.append(F::kEqual, x, program.constant(0));
  const int none = program.constant(0);
  const int of_zero =
      program.append(F::kWhere, program.append(F::kEqual, count, program.constant(1)), p, none);
  const int of_other = program.append(F::kWhere, count, none, program.append(F::kDiv, p, x));
  program.append(F::kMul, program.input(0), program.append(F::kWhere, here, of_zero, of_other));
  return rule.gradient(program,
                       {rule.reduced(d_y), rule.x(), rule.reduced(zeros), rule.reduced(product)});
}

OpInputs reduce_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  if (!builder.needs_gradient(op.inputs[ReduceIn::kX])) return {kNoTensor};
  const ReduceRule rule{builder, op, op.as<ReduceAttributes>()};
  switch (rule.attributes.kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMean: return {sum_gradient(rule, d_outputs[ReduceOut::kY])};
    case ReduceKind::kMax:
    case ReduceKind::kMin: return {extreme_gradient(rule, d_outputs[ReduceOut::kY])};
    case ReduceKind::kProduct: return {product_gradient(rule, d_outputs[ReduceOut::kY])};
  }
  return {kNoTensor};
}

}  // namespace

const OpSchema kReduceSchema = {reduce_gradient, elementwise_flops<1>, {}};

}  // namespace lockstep::graph

#include "runtime/graph/ops/pointwise.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/reduce.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

bool broadcast(const Shape& with, Shape& to) {
  const Shape& longer = with.rank() > to.rank() ? with : to;
  Shape result;
  for (int back = longer.rank(); back > 0; --back) {
    const int64_t a = back <= with.rank() ? with[with.rank() - back] : 1;
    const int64_t b = back <= to.rank() ? to[to.rank() - back] : 1;
    if (a != b && a != 1 && b != 1) return false;
    result.append(a == 1 ? b : a);
  }
  to = result;
  return true;
}

PointwiseLoops PointwiseLoops::of(const Shape& y, const std::vector<Shape>& inputs) {
  // By dimension of y, without extents of 1.
  PointwiseLoops loops;
  std::vector<int64_t> behind(inputs.size(), 1);  // elements of the input in the inner dimensions
  const auto stride = [&](size_t k, int dimension) -> int64_t {
    const Shape& shape = inputs[k];
    const int axis = dimension - (y.rank() - shape.rank());
    if (axis < 0 || shape[axis] == 1) return 0;
    return std::exchange(behind[k], behind[k] * shape[axis]);
  };
  // From the innermost dimension outwards; reversed later.
  for (int dimension = y.rank() - 1; dimension >= 0; --dimension) {
    if (y[dimension] == 1) continue;
    bool joins = loops.rank > 0;
    int64_t strides[PointwiseCode::kMaxInputs];
    for (size_t k = 0; k < inputs.size(); ++k) {
      strides[k] = stride(k, dimension);
      if (loops.rank > 0)
        joins &= strides[k] == loops.strides[k][loops.rank - 1] * loops.extents[loops.rank - 1];
    }
    if (joins) {
      loops.extents[loops.rank - 1] *= y[dimension];
      continue;
    }
    for (size_t k = 0; k < inputs.size(); ++k) loops.strides[k][loops.rank] = strides[k];
    loops.extents[loops.rank++] = y[dimension];
  }
  if (loops.rank == 0) {  // one element
    loops.rank = 1;
    loops.extents[0] = 1;
    for (size_t k = 0; k < inputs.size(); ++k) loops.strides[k][0] = 0;
  }
  std::reverse(loops.extents, loops.extents + loops.rank);
  for (size_t k = 0; k < inputs.size(); ++k)
    std::reverse(loops.strides[k], loops.strides[k] + loops.rank);
  return loops;
}

Op pointwise_op(const std::string& name,
                const std::vector<PointwiseInput>& inputs,
                const PointwiseProgram& program,
                TensorId y) {
  std::vector<TensorId> tensors;
  std::vector<Shape> shapes;
  std::vector<int> numbers;
  for (size_t k = 0; k < inputs.size(); ++k) {  // each tensor once
    size_t number = 0;
    while (number < tensors.size() &&
           !(tensors[number] == inputs[k].tensor && shapes[number] == inputs[k].shape))
      ++number;
    numbers.push_back(static_cast<int>(number));
    if (number < tensors.size() || !program.uses(static_cast<int>(k))) continue;
    tensors.push_back(inputs[k].tensor);
    shapes.push_back(inputs[k].shape);
  }
  PointwiseAttributes attributes{program.renumbered(numbers), {}, std::move(shapes)};
  const auto code = compile_pointwise(attributes.program);
  LOCKSTEP_CHECK(code.has_value(), "{}: a program of that many functions or inputs ", name);
  attributes.code = *code;
  return {OpKind::kPointwise, name, std::move(tensors), {y}, std::move(attributes)};
}

TensorId ops::pointwise(GraphBuilder& builder,
                        const std::string& name,
                        const std::vector<TensorId>& inputs,
                        const PointwiseProgram& program,
                        bool integers) {
  LOCKSTEP_CHECK(program.fits(), "{}: a program of that many functions or inputs ", name);
  LOCKSTEP_CHECK(program.inputs() <= static_cast<int>(inputs.size()), "{}: inputs ", name);
  Shape shape;
  std::vector<PointwiseInput> read;
  for (const TensorId input : inputs) {
    read.push_back({input, builder.shape(input)});
    LOCKSTEP_CHECK(builder[input].role != Role::kParameter, "{}: a parameter as input ", name);
    LOCKSTEP_CHECK(builder[input].padded_columns == 0, "{}: an input of padded rows ", name);
    LOCKSTEP_CHECK(broadcast(builder.shape(input), shape), "{}: shapes of inputs ", name);
  }
  const TensorId y = integers ? builder.tensor(name, shape, DType::kI32, Role::kActivation)
                              : builder.activation_tensor(name, shape);
  builder.append(pointwise_op(name, read, program, y));
  return y;
}

namespace {

OpInputs pointwise_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  std::vector<TensorId> gradients(op.inputs.size(), kNoTensor);
  const Graph& graph = builder.graph();
  const TensorId d_y = d_outputs[PointwiseOut::kY], y = op.outputs[PointwiseOut::kY];
  if (graph[y].dtype == DType::kI32) return gradients;
  const auto& attributes = op.as<PointwiseAttributes>();
  std::vector<PointwiseInput> read = {{d_y, graph.shape(y)}};
  for (size_t k = 0; k < op.inputs.size(); ++k)
    read.push_back({op.inputs.at(k), attributes.shapes[k]});
  // Inputs with the same derivative, such as those of a sum, share it.
  std::vector<std::pair<TensorId, PointwiseProgram>> made;
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    const TensorId x = op.inputs.at(k);
    if (graph[x].dtype == DType::kI32 || !builder.needs_gradient(x)) continue;
    const auto slope = attributes.program.derivative(static_cast<int>(k));
    if (!slope) continue;
    const bool is_full_size = graph.shape(x).elements() == graph.shape(y).elements();
    const bool alike = graph.shape(x) == graph.shape(y) && graph[x].dtype == graph[y].dtype;
    TensorId d = d_y;  // if the input was only added
    if (slope->functions() > 0 || (is_full_size && !alike)) {
      const TensorId like = is_full_size ? x : y;
      const auto known = std::ranges::find_if(made, [&](const auto& other) {
        return other.second == *slope && graph.shape(other.first) == graph.shape(like) &&
               graph[other.first].dtype == graph[like].dtype;
      });
      if (known != made.end()) {
        d = known->first;
      } else {
        d = builder.new_gradient(like);
        builder.append(pointwise_op(op.name, read, *slope, d));
        made.emplace_back(d, *slope);
      }
    }
    gradients[k] =
        is_full_size ? d : append_broadcast_sum(builder, op.name, d, attributes.shapes[k], x);
  }
  return gradients;
}

int64_t pointwise_flops(const Graph& graph, const Op& op) {
  return op.as<PointwiseAttributes>().program.functions() *
         graph.shape(op.outputs[PointwiseOut::kY]).elements();
}

}  // namespace

const OpSchema kPointwiseSchema = {pointwise_gradient,
                                   pointwise_flops,
                                   {{PointwiseOut::kY, {PointwiseIn::kX, 0}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 1}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 2}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 3}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 4}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 5}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 6}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 7}},
                                    {PointwiseOut::kY, {PointwiseIn::kX, 8}}}};

}  // namespace lockstep::graph

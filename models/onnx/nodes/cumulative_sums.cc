// CumSum.

#include "models/onnx/nodes/lowering/pointwise.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/reductions.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

std::vector<Form> rule_cum_sum(const NodeView& node) {
  node.require_inputs(2, 2);
  node.axis(node.known_integer(1), node.rank(0));
  return {node.form(0)};
}

// Sums along the axis, from its end if the node has `reverse`.
template <typename Number>
Array cumulative(const NodeView& node) {
  const size_t axis = node.axis(node.known_integer(1), node.rank(0));
  const bool exclusive = node.integer("exclusive", 0) != 0;
  const bool reverse = node.integer("reverse", 0) != 0;
  const Extents& extents = node.extents(0);
  std::vector<Number> values = elements_as<Number>(node.array(0));
  using Sum = std::conditional_t<std::is_same_v<Number, int64_t>, uint64_t, Number>;
  const int64_t inner = product(extents, axis + 1, extents.size());
  const int64_t length = extents[axis];
  for (int64_t row = 0; row < product(extents, 0, axis) * inner; ++row) {
    const int64_t start = row / inner * length * inner + row % inner;
    Sum total = 0;
    for (int64_t i = 0; i < length; ++i) {
      Number& value = values[static_cast<size_t>(start + (reverse ? length - 1 - i : i) * inner)];
      const Sum next = total + static_cast<Sum>(value);
      value = static_cast<Number>(exclusive ? total : next);
      total = next;
    }
  }
  return array_from(node.type(0), extents, values);
}

std::vector<Array> evaluate_cum_sum(const NodeView& node, const std::vector<Form>&) {
  return {is_floating(node.type(0)) ? cumulative<double>(node) : cumulative<int64_t>(node)};
}

// For each element, the sum of those before it (with reverse: after it), and of itself unless
// exclusive.
struct RunningSum {
  bool exclusive, reverse;
};

// Cumulative sums along the rows of x (rows, n), as a product with a triangular matrix of ones.
// Long rows are summed in blocks, to which the sums of the preceding blocks are added.
TensorId running_sums(graph::GraphBuilder& builder,
                      const std::string& name,
                      TensorId x,
                      const RunningSum& how) {
  constexpr int64_t kBlock = 256;
  const int64_t rows = builder.shape(x)[0], n = builder.shape(x)[1];
  if (n <= kBlock) {
    std::vector<float> ones;
    for (int64_t from = 0; from < n; ++from) {
      for (int64_t to = 0; to < n; ++to) {
        const bool before = how.reverse ? from > to : from < to;
        ones.push_back(before || (!how.exclusive && from == to) ? 1.0f : 0.0f);
      }
    }
    const TensorId matrix = builder.constant(name + ".ones", {n, n}, ones);
    return ops::batched_matmul(builder, name, x, matrix, false, false, 1);
  }
  const int64_t blocks = (n + kBlock - 1) / kBlock, padded = blocks * kBlock;
  if (padded > n) x = ops::pad(builder, name + ".padded", x, {0, 0}, {0, padded - n}, 0);
  x = ops::reshape(builder, name + ".blocks", x, {rows * blocks, kBlock});
  TensorId totals = ops::reduce(builder, name + ".totals", x, graph::ReduceKind::kSum, {1}, true);
  totals = ops::reshape(builder, name + ".row", totals, {rows, blocks});
  TensorId before =
      running_sums(builder, name + ".before", totals, {.exclusive = true, .reverse = how.reverse});
  before = ops::reshape(builder, name + ".column", before, {rows * blocks, 1});
  TensorId y = append_function(builder,
                               name + ".sums",
                               graph::PointwiseFunction::kAdd,
                               running_sums(builder, name + ".within", x, how),
                               before);
  y = ops::reshape(builder, name + ".whole_rows", y, {rows, padded});
  return padded == n ? y : ops::slice(builder, name, y, {0, 0}, {1, 1}, {rows, n});
}

void lower_cum_sum(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Value& to = lowering.value(node.output(0));
  const Shape shape = shape_of(to);
  const int rank = shape.rank();
  const NodeView view = lowering.readers().view(node);
  const auto axis = static_cast<int>(view.axis(view.known_integer(1), rank));
  const RunningSum how = {.exclusive = node.integer("exclusive", 0) != 0,
                          .reverse = node.integer("reverse", 0) != 0};
  std::vector<int> swapped = numbers_from<int>(static_cast<size_t>(rank));
  std::swap(swapped[static_cast<size_t>(axis)], swapped.back());
  TensorId x = as_numbers(builder, name, input_of(lowering, node, 0));
  if (axis != rank - 1) x = ops::transpose(builder, name + ".last", x, swapped);
  const Shape order = builder.shape(x);
  x = ops::reshape(builder, name + ".rows", x, {order.rows(), order.columns()});
  x = running_sums(builder, name, x, how);
  x = ops::reshape(builder, name + ".extents", x, order);
  if (axis != rank - 1) x = ops::transpose(builder, name + ".back", x, swapped);
  if (is_integer(to.type)) {
    lowering.require_fp32(node);
    x = as_integers(builder, name, x);
  }
  set_output(lowering, node, x);
}

constexpr NodeType kNodes[] = {
    {"CumSum", rule_cum_sum, lower_cum_sum, evaluate_cum_sum},
};

}  // namespace

std::span<const NodeType> cumulative_sum_nodes() { return kNodes; }

}  // namespace lockstep::onnx

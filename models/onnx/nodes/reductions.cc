// Reductions over axes.
#include "models/onnx/nodes/reductions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/onnx/nodes/lowering/pointwise.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double max_of(const double* row, size_t n) {
  double result = -kInfinity;
  for (size_t i = 0; i < n; ++i) result = std::isnan(row[i]) || row[i] > result ? row[i] : result;
  return result;
}

std::vector<bool> reduced_axes(const NodeView& node) {
  const auto list = node.list("axes", 1);
  std::vector<bool> reduced(node.extents(0).size(), false);
  if (!list || list->empty()) {
    if (node.integer("noop_with_empty_axes", 0) == 0) reduced.assign(reduced.size(), true);
    return reduced;
  }
  for (const size_t axis : node.axes(*list, node.rank(0))) reduced[axis] = true;
  return reduced;
}

namespace {

std::vector<Form> rule_reduce(const NodeView& node) {
  node.require_inputs(1, 2);
  const bool keep = node.integer("keepdims", 1) != 0;
  const std::vector<bool> reduced = reduced_axes(node);
  Form to{node.type(0), {}};
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i]) to.extents.push_back(node.extents(0)[i]);
    if (reduced[i] && keep) to.extents.push_back(1);
  }
  return {to};
}

}  // namespace

Rows rows_of(const NodeView& node, const std::vector<bool>& reduced) {
  const std::vector<int64_t> input_strides = strides_of(node.extents(0));
  Rows rows;
  Extents extents;
  std::vector<int64_t> strides;
  int64_t counts[2] = {1, 1};
  for (const bool last : {false, true}) {
    for (size_t i = 0; i < reduced.size(); ++i) {
      if (reduced[i] != last) continue;
      extents.push_back(node.extents(0)[i]);
      strides.push_back(input_strides[i]);
      counts[last ? 1 : 0] *= node.extents(0)[i];
    }
  }
  rows.count = static_cast<size_t>(counts[0]);
  rows.length = static_cast<size_t>(counts[1]);
  rows.array = strided_copy(node.array(0), extents, strides);
  return rows;
}

namespace {

// Reduces a row to one number.
template <typename Number>
using Reduction = Number (*)(const Number* row, size_t length);

template <typename Number>
Array reduce(const NodeView& node, const Form& output, Reduction<Number> reduction) {
  const Rows rows = rows_of(node, reduced_axes(node));
  const std::vector<Number> values = elements_as<Number>(rows.array);
  std::vector<Number> results(rows.count);
  for (size_t i = 0; i < rows.count; ++i)
    results[i] = reduction(values.data() + i * rows.length, rows.length);
  return array_from(output.type, output.extents, results);
}

template <auto kNumbers, auto kIntegers>
std::vector<Array> evaluate_reduce(const NodeView& node, const std::vector<Form>& outputs) {
  if (is_floating(node.type(0))) return {reduce<double>(node, outputs[0], kNumbers)};
  return {reduce<int64_t>(node, outputs[0], kIntegers)};
}

double sum(const double* row, size_t n) { return std::accumulate(row, row + n, 0.0); }
double mean(const double* row, size_t n) { return sum(row, n) / static_cast<double>(n); }
double product_of(const double* row, size_t n) {
  return std::accumulate(row, row + n, 1.0, std::multiplies<>());
}
double min_of(const double* row, size_t n) {
  double result = kInfinity;
  for (size_t i = 0; i < n; ++i) result = std::isnan(row[i]) || row[i] < result ? row[i] : result;
  return result;
}
double sum_magnitudes(const double* row, size_t n) {
  double result = 0;
  for (size_t i = 0; i < n; ++i) result += std::fabs(row[i]);
  return result;
}
double sum_squares(const double* row, size_t n) {
  return std::inner_product(row, row + n, row, 0.0);
}
double norm(const double* row, size_t n) { return std::sqrt(sum_squares(row, n)); }
double log_sum(const double* row, size_t n) { return std::log(sum(row, n)); }
double log_sum_exp(const double* row, size_t n) {
  const double max = max_of(row, n);
  if (std::isinf(max)) return max;
  double result = 0;
  for (size_t i = 0; i < n; ++i) result += std::exp(row[i] - max);
  return max + std::log(result);
}

// For integers, sums and products wrap on overflow.
int64_t integer_sum(const int64_t* row, size_t n) {
  uint64_t result = 0;
  for (size_t i = 0; i < n; ++i) result += static_cast<uint64_t>(row[i]);
  return static_cast<int64_t>(result);
}
int64_t integer_mean(const int64_t* row, size_t n) {
  return n == 0 ? 0 : integer_sum(row, n) / static_cast<int64_t>(n);
}
int64_t integer_product(const int64_t* row, size_t n) {
  uint64_t result = 1;
  for (size_t i = 0; i < n; ++i) result *= static_cast<uint64_t>(row[i]);
  return static_cast<int64_t>(result);
}
int64_t integer_max(const int64_t* row, size_t n) {
  return n == 0 ? 0 : *std::max_element(row, row + n);
}
int64_t integer_min(const int64_t* row, size_t n) {
  return n == 0 ? 0 : *std::min_element(row, row + n);
}
int64_t integer_magnitudes(const int64_t* row, size_t n) {
  uint64_t result = 0;
  for (size_t i = 0; i < n; ++i)
    result +=
        row[i] < 0 ? uint64_t{0} - static_cast<uint64_t>(row[i]) : static_cast<uint64_t>(row[i]);
  return static_cast<int64_t>(result);
}
int64_t integer_squares(const int64_t* row, size_t n) {
  uint64_t result = 0;
  for (size_t i = 0; i < n; ++i)
    result += static_cast<uint64_t>(row[i]) * static_cast<uint64_t>(row[i]);
  return static_cast<int64_t>(result);
}
// Applies a floating-point reduction to integers and truncates the result.
template <Reduction<double> kReduction>
int64_t on_numbers(const int64_t* row, size_t n) {
  const std::vector<double> numbers(row, row + n);
  return truncated(kReduction(numbers.data(), n));
}

using F = graph::PointwiseFunction;

// log(sum(e^(x - m))) + m, where m is the maximum, so that nothing overflows.
TensorId append_log_sum_exp(graph::GraphBuilder& builder,
                            const std::string& name,
                            TensorId x,
                            const std::vector<int>& axes) {
  const TensorId max = ops::reduce(builder, name + ".max", x, graph::ReduceKind::kMax, axes, true);
  const TensorId below = append_function(builder, name + ".below", F::kSub, x, max);
  const TensorId powers = append_functions(builder, name + ".powers", below, {F::kExp});
  const TensorId sum =
      ops::reduce(builder, name + ".sum", powers, graph::ReduceKind::kSum, axes, true);
  return append_function(
      builder, name, F::kAdd, append_functions(builder, name + ".log", sum, {F::kLog}), max);
}

// The reduction of the node; reduced axes have extent 1.
TensorId reduced(graph::GraphBuilder& builder,
                 const Node& node,
                 const std::string& name,
                 TensorId x,
                 const std::vector<int>& axes) {
  const auto over = [&](TensorId of, graph::ReduceKind kind) {
    return ops::reduce(builder, name + ".reduced", of, kind, axes, true);
  };
  const std::string& op = node.op;
  if (op == "ReduceMax") return over(x, graph::ReduceKind::kMax);
  if (op == "ReduceMin") return over(x, graph::ReduceKind::kMin);
  if (op == "ReduceMean") return over(x, graph::ReduceKind::kMean);
  if (op == "ReduceProd") return over(x, graph::ReduceKind::kProduct);
  if (op == "ReduceSum") return over(x, graph::ReduceKind::kSum);
  if (op == "ReduceL1")
    return over(append_functions(builder, name + ".abs", x, {F::kAbs}), graph::ReduceKind::kSum);
  if (op == "ReduceLogSum")
    return append_functions(builder, name, over(x, graph::ReduceKind::kSum), {F::kLog});
  if (op == "ReduceLogSumExp") return append_log_sum_exp(builder, name, x, axes);
  const TensorId sum = over(append_squares(builder, name + ".squares", x), graph::ReduceKind::kSum);
  return op == "ReduceL2" ? append_functions(builder, name, sum, {F::kSqrt}) : sum;
}

}  // namespace

TensorId as_numbers(graph::GraphBuilder& builder, const std::string& name, TensorId x) {
  return builder[x].dtype == DType::kI32
             ? append_functions(builder, name + ".numbers", x, {F::kIdentity})
             : x;
}

TensorId as_integers(graph::GraphBuilder& builder, const std::string& name, TensorId x) {
  graph::PointwiseProgram same;
  same.input(0);
  return ops::pointwise(builder, name + ".whole", {x}, same, /*integers=*/true);
}

namespace {

// Keeps the layout of images, unless some but not all of their spatial axes are removed.
void lower_reduction(Lowering& lowering, const Node& node) {
  graph::GraphBuilder& builder = lowering.builder();
  const Value& to = lowering.value(node.output(0));
  const size_t rank = lowering.value(node.input(0)).extents.size();
  const std::string name = lowering.name_of(node);
  std::vector<int> axes;
  const std::vector<bool> reduces = reduced_axes(lowering.readers().view(node));
  for (size_t axis = 0; axis < rank; ++axis)
    if (reduces[axis]) axes.push_back(static_cast<int>(axis));
  const bool kept = to.extents.size() == rank;
  const auto pixels = std::ranges::count_if(axes, [](int axis) { return axis > 1; });
  const bool last =
      lowering.layouts().is_channels_last(node.input(0)) &&
      (kept || pixels == static_cast<int64_t>(rank) - 2 || std::ranges::count(axes, 1) > 0);
  TensorId y = kNoTensor;
  if (last && node.op == "ReduceMean" && rank == 4 && axes.size() == 2 && pixels == 2) {
    y = ops::global_avg_pool(builder, name, lowering.layouts().channels_last(node.input(0)));
    return set_reshaped(lowering, node, y);
  }
  if (last)
    for (int& axis : axes) axis = axis_in_last(axis, rank);
  const TensorId x = as_numbers(builder, name, input_of(lowering, node, 0, last));
  y = reduced(builder, node, name, x, axes);
  if (is_integer(to.type)) {
    lowering.require_fp32(node);
    y = as_integers(builder, name, y);
  }
  if (kept) return set_output(lowering, node, y, last);
  set_reshaped(lowering, node, y);
}

constexpr NodeType kNodes[] = {
    {"ReduceSum", rule_reduce, lower_reduction, evaluate_reduce<sum, integer_sum>},
    {"ReduceMean", rule_reduce, lower_reduction, evaluate_reduce<mean, integer_mean>},
    {"ReduceMax", rule_reduce, lower_reduction, evaluate_reduce<max_of, integer_max>},
    {"ReduceMin", rule_reduce, lower_reduction, evaluate_reduce<min_of, integer_min>},
    {"ReduceProd", rule_reduce, lower_reduction, evaluate_reduce<product_of, integer_product>},
    {"ReduceL1", rule_reduce, lower_reduction, evaluate_reduce<sum_magnitudes, integer_magnitudes>},
    {"ReduceL2", rule_reduce, lower_reduction, evaluate_reduce<norm, on_numbers<norm>>},
    {"ReduceLogSum", rule_reduce, lower_reduction, evaluate_reduce<log_sum, on_numbers<log_sum>>},
    {"ReduceLogSumExp",
     rule_reduce,
     lower_reduction,
     evaluate_reduce<log_sum_exp, on_numbers<log_sum_exp>>},
    {"ReduceSumSquare",
     rule_reduce,
     lower_reduction,
     evaluate_reduce<sum_squares, integer_squares>},
};

}  // namespace

std::span<const NodeType> reduction_nodes() { return kNodes; }

}  // namespace lockstep::onnx

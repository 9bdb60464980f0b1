// Ops over the elements of axes: reductions, softmax, cumulative sums, ArgMax, TopK.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/onnx/rules/reductions.h"
#include "models/onnx/rules/strided.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

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

// The input with the reduced axes moved to the end: `count` rows of `length` elements.
struct Rows {
  size_t count = 0;
  size_t length = 0;
  Array array;
};

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
double max_of(const double* row, size_t n) {
  double result = -kInfinity;
  for (size_t i = 0; i < n; ++i) result = std::isnan(row[i]) || row[i] > result ? row[i] : result;
  return result;
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

size_t axis_of(const NodeView& node, int64_t otherwise) {
  return node.axis(node.integer("axis", otherwise), node.rank(0));
}

}  // namespace

std::vector<bool> softmax_axes(const NodeView& node) {
  const bool old = node.opset() < 13;
  std::vector<bool> axes(node.extents(0).size(), false);
  const size_t axis = axis_of(node, old ? 1 : -1);
  for (size_t i = axis; i < (old ? axes.size() : axis + 1); ++i) axes[i] = true;
  return axes;
}

namespace {

std::vector<Form> rule_softmax(const NodeView& node) {
  node.require_floating(0);
  softmax_axes(node);
  return {node.form(0)};
}

// The inverse of rows_of: moves the reduced axes back to where they were in the input.
Array from_rows(const NodeView& node,
                const std::vector<bool>& last,
                ElementType type,
                const std::vector<double>& values) {
  const Extents& to = node.extents(0);
  Extents extents;
  std::vector<size_t> order;
  for (const bool turn : {false, true})
    for (size_t i = 0; i < last.size(); ++i)
      if (last[i] == turn) {
        extents.push_back(to[i]);
        order.push_back(i);
      }
  const std::vector<int64_t> row_strides = strides_of(extents);
  std::vector<int64_t> strides(to.size());
  for (size_t i = 0; i < order.size(); ++i) strides[order[i]] = row_strides[i];
  return strided_copy(array_from(type, extents, values), to, strides);
}

std::vector<Array> evaluate_softmax(const NodeView& node, const std::vector<Form>& outputs) {
  const bool log = node.node().op == "LogSoftmax";
  const std::vector<bool> axes = softmax_axes(node);
  const Rows rows = rows_of(node, axes);
  std::vector<double> values = rows.array.as_double();
  for (size_t i = 0; i < rows.count; ++i) {
    double* row = values.data() + i * rows.length;
    const double max = max_of(row, rows.length);
    double total = 0;
    for (size_t k = 0; k < rows.length; ++k) total += std::exp(row[k] - max);
    for (size_t k = 0; k < rows.length; ++k)
      row[k] = log ? row[k] - max - std::log(total) : std::exp(row[k] - max) / total;
  }
  return {from_rows(node, axes, outputs[0].type, values)};
}

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

std::vector<Form> rule_arg(const NodeView& node) {
  const size_t axis = axis_of(node, 0);
  Extents to = node.extents(0);
  if (to[axis] == 0) node.refuse("axis {} has no elements", axis);
  to[axis] = 1;
  if (node.integer("keepdims", 1) == 0) to.erase(to.begin() + static_cast<int64_t>(axis));
  return {{ElementType::kInt64, to}};
}

std::vector<Array> evaluate_arg(const NodeView& node, const std::vector<Form>& outputs) {
  const bool last = node.integer("select_last_index", 0) != 0;
  const double direction = node.node().op == "ArgMax" ? 1 : -1;
  std::vector<bool> axes(node.extents(0).size(), false);
  axes[axis_of(node, 0)] = true;
  const Rows rows = rows_of(node, axes);
  const std::vector<double> values = rows.array.as_double();
  std::vector<int64_t> found(rows.count, 0);
  for (size_t i = 0; i < rows.count; ++i) {
    const double* row = values.data() + i * rows.length;
    size_t best = 0;
    for (size_t k = 1; k < rows.length; ++k) {
      const double ahead = direction * (row[k] - row[best]);
      if (ahead > 0 || (last && ahead == 0)) best = k;
    }
    found[i] = static_cast<int64_t>(best);
  }
  return {array_of_int64(outputs[0].extents, found)};
}

std::vector<Form> rule_hardmax(const NodeView& node) { return rule_softmax(node); }

std::vector<Form> rule_top_k(const NodeView& node) {
  const size_t axis = axis_of(node, -1);
  Extents to = node.extents(0);
  const int64_t k = node.node().has("k") ? node.integer("k", 0) : node.known_integer(1);
  if (k < 0 || k > to[axis]) node.refuse("k is {}; must be within 0 and {}", k, to[axis]);
  to[axis] = k;
  return {{node.type(0), to}, {ElementType::kInt64, to}};
}

constexpr Op kOps[] = {
    {"ReduceSum", rule_reduce, evaluate_reduce<sum, integer_sum>},
    {"ReduceMean", rule_reduce, evaluate_reduce<mean, integer_mean>},
    {"ReduceMax", rule_reduce, evaluate_reduce<max_of, integer_max>},
    {"ReduceMin", rule_reduce, evaluate_reduce<min_of, integer_min>},
    {"ReduceProd", rule_reduce, evaluate_reduce<product_of, integer_product>},
    {"ReduceL1", rule_reduce, evaluate_reduce<sum_magnitudes, integer_magnitudes>},
    {"ReduceL2", rule_reduce, evaluate_reduce<norm, on_numbers<norm>>},
    {"ReduceLogSum", rule_reduce, evaluate_reduce<log_sum, on_numbers<log_sum>>},
    {"ReduceLogSumExp", rule_reduce, evaluate_reduce<log_sum_exp, on_numbers<log_sum_exp>>},
    {"ReduceSumSquare", rule_reduce, evaluate_reduce<sum_squares, integer_squares>},
    {"Softmax", rule_softmax, evaluate_softmax},
    {"LogSoftmax", rule_softmax, evaluate_softmax},
    {"Hardmax", rule_hardmax},
    {"CumSum", rule_cum_sum, evaluate_cum_sum},
    {"ArgMax", rule_arg, evaluate_arg},
    {"ArgMin", rule_arg, evaluate_arg},
    {"TopK", rule_top_k},
};

}  // namespace

std::span<const Op> reduction_ops() { return kOps; }

}  // namespace lockstep::onnx

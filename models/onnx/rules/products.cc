// Matrix products: MatMul, Gemm, Einsum.

#include <algorithm>
#include <map>
#include <string>

#include "models/onnx/rules/einsum.h"
#include "models/onnx/rules/strided.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

// At most this many multiply-adds are folded.
constexpr int64_t kMaxProducts = int64_t{1} << 34;
// At most this many terms of an Einsum are folded; all are in memory at once.
constexpr int64_t kMaxTerms = int64_t{1} << 25;

// The factors of a MatMul. A vector is a matrix of one row (left) or one column (right).
struct Factors {
  Extents left;   // (..., m, k)
  Extents right;  // (..., k, n)
  Extents batch;
  Extents output;
};

Factors factors_of(const NodeView& node) {
  node.require_inputs(2, 2);
  node.require_same_type(0, 1);
  Factors f{node.extents(0), node.extents(1), {}, {}};
  if (f.left.empty() || f.right.empty()) node.refuse("a factor has no axis; must have 1 or more");
  const bool row = f.left.size() == 1;
  const bool column = f.right.size() == 1;
  if (row) f.left.insert(f.left.begin(), 1);
  if (column) f.right.push_back(1);
  if (f.left.back() != f.right[f.right.size() - 2])
    node.refuse(
        "factors with extents {} and {}; the last axis of the first must be as long as the "
        "second-to-last of the second",
        to_string(node.extents(0)),
        to_string(node.extents(1)));
  f.batch =
      broadcast(node, {f.left.begin(), f.left.end() - 2}, {f.right.begin(), f.right.end() - 2});
  f.output = f.batch;
  if (!row) f.output.push_back(f.left[f.left.size() - 2]);
  if (!column) f.output.push_back(f.right.back());
  return f;
}

std::vector<Form> rule_mat_mul(const NodeView& node) {
  return {{node.type(0), factors_of(node).output}};
}

double multiply_add(double a, double b, double c) { return a * b + c; }
// Wraps on overflow.
int64_t multiply_add(int64_t a, int64_t b, int64_t c) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) +
                              static_cast<uint64_t>(c));
}

template <typename Number>
void multiply(const Number* left,
              const Number* right,
              Number* output,
              size_t rows,
              size_t inner,
              size_t columns) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < inner; ++k)
      for (size_t j = 0; j < columns; ++j) {
        Number& sum = output[i * columns + j];
        sum = multiply_add(left[i * inner + k], right[k * columns + j], sum);
      }
}

template <typename Number>
Array mat_mul(const NodeView& node, const Form& output) {
  const Factors f = factors_of(node);
  const auto rows = static_cast<size_t>(f.left[f.left.size() - 2]);
  const auto inner = static_cast<size_t>(f.left.back());
  const auto columns = static_cast<size_t>(f.right.back());
  Extents left = f.batch;
  Extents right = f.batch;
  left.insert(left.end(), f.left.end() - 2, f.left.end());
  right.insert(right.end(), f.right.end() - 2, f.right.end());
  const std::vector<Number> a =
      elements_as<Number>(broadcast_to(with_extents(node.array(0), f.left), left));
  const std::vector<Number> b =
      elements_as<Number>(broadcast_to(with_extents(node.array(1), f.right), right));
  const auto batches = static_cast<size_t>(elements(f.batch));
  std::vector<Number> c(batches * rows * columns, 0);
  for (size_t i = 0; i < batches; ++i)
    multiply(a.data() + i * rows * inner,
             b.data() + i * inner * columns,
             c.data() + i * rows * columns,
             rows,
             inner,
             columns);
  return array_from(output.type, output.extents, c);
}

std::vector<Array> evaluate_mat_mul(const NodeView& node, const std::vector<Form>& outputs) {
  const int64_t inner = std::max<int64_t>(factors_of(node).left.back(), 1);
  if (elements(outputs[0].extents) > kMaxProducts / inner)
    node.refuse(
        "its constant factors, with extents {} and {}, are too large to be multiplied before "
        "training starts",
        to_string(node.extents(0)),
        to_string(node.extents(1)));
  return {is_floating(node.type(0)) ? mat_mul<double>(node, outputs[0])
                                    : mat_mul<int64_t>(node, outputs[0])};
}

bool transposed(const NodeView& node, size_t index) {
  return node.integer(index == 0 ? "transA" : "transB", 0) != 0;
}

std::vector<Form> rule_gemm(const NodeView& node) {
  node.require_inputs(2, 3);
  node.require_rank(0, 2, 2);
  node.require_rank(1, 2, 2);
  node.require_same_type(0, 1);
  Extents a = node.extents(0);
  Extents b = node.extents(1);
  if (transposed(node, 0)) std::swap(a[0], a[1]);
  if (transposed(node, 1)) std::swap(b[0], b[1]);
  if (a[1] != b[0])
    node.refuse("factors with extents {} and {} (after transposition) do not match",
                to_string(a),
                to_string(b));
  const Extents to = {a[0], b[1]};
  if (node.has(2) && broadcast(node, to, node.extents(2)) != to)
    node.refuse("its input 2 has extents {}; must be broadcastable to {}",
                to_string(node.extents(2)),
                to_string(to));
  return {{node.type(0), to}};
}

// A factor of Gemm, transposed if the node's attribute is set.
std::vector<double> factor(const NodeView& node, size_t index) {
  if (!transposed(node, index)) return node.array(index).as_double();
  const Extents& e = node.extents(index);
  return strided_copy(node.array(index), {e[1], e[0]}, {1, e[1]}).as_double();
}

std::vector<Array> evaluate_gemm(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& to = outputs[0].extents;
  const std::vector<double> a = factor(node, 0);
  const std::vector<double> b = factor(node, 1);
  const auto rows = static_cast<size_t>(to[0]);
  const auto columns = static_cast<size_t>(to[1]);
  const auto inner = static_cast<size_t>(node.extents(0)[transposed(node, 0) ? 0 : 1]);
  if (elements(to) > kMaxProducts / std::max<int64_t>(static_cast<int64_t>(inner), 1))
    node.refuse("its constant factors are too large to be multiplied before training starts");
  std::vector<double> c(rows * columns, 0);
  multiply(a.data(), b.data(), c.data(), rows, inner, columns);
  for (double& x : c) x *= node.node().number("alpha", 1);
  if (node.has(2)) {
    const std::vector<double> bias = broadcast_to(node.array(2), to).as_double();
    const double beta = node.node().number("beta", 1);
    for (size_t i = 0; i < c.size(); ++i) c[i] += beta * bias[i];
  }
  return {array_from(outputs[0].type, to, c)};
}

// The extents of an Einsum's letters, and the broadcast extents of `...`.
struct Letters {
  std::map<char, int64_t> extents;
  Extents ellipsis;
};

Letters letters_of(const NodeView& node, const Einsum& einsum) {
  if (einsum.inputs.size() != node.inputs())
    node.refuse("its equation has {} terms; must have {}", einsum.inputs.size(), node.inputs());
  Letters letters;
  for (size_t index = 0; index < node.inputs(); ++index) {
    const EinsumTerm& term = einsum.inputs[index];
    const Extents& extents = node.extents(index);
    const size_t named = term.before.size() + term.after.size();
    if (extents.size() < named || (extents.size() > named && !term.ellipsis))
      node.refuse("extents {} do not fit its term of {} letters", to_string(extents), named);
    const size_t ellipsis_rank = extents.size() - named;
    const auto at = extents.begin() + static_cast<int64_t>(term.before.size());
    if (term.ellipsis)
      letters.ellipsis =
          broadcast(node, letters.ellipsis, {at, at + static_cast<int64_t>(ellipsis_rank)});
    for (size_t i = 0; i < named; ++i) {
      const bool late = i >= term.before.size();
      const char letter = late ? term.after[i - term.before.size()] : term.before[i];
      const int64_t extent = extents[late ? i + ellipsis_rank : i];
      int64_t& known = letters.extents.emplace(letter, extent).first->second;
      if (known == 1) known = extent;
      if (known != extent && extent != 1)
        node.refuse("letter {} of its equation has extents {} and {}; they must be equal",
                    letter,
                    known,
                    extent);
    }
  }
  return letters;
}

std::vector<Form> rule_einsum(const NodeView& node) {
  const Einsum einsum = parse_einsum(node);
  const Letters letters = letters_of(node, einsum);
  for (size_t index = 1; index < node.inputs(); ++index) node.require_same_type(0, index);
  Form to{node.type(0), {}};
  const auto add = [&](const std::string& names) {
    for (const char letter : names) {
      if (letters.extents.count(letter) == 0)
        node.refuse("letter {} of its output is not in any input", letter);
      to.extents.push_back(letters.extents.at(letter));
    }
  };
  add(einsum.output.before);
  if (einsum.output.ellipsis)
    to.extents.insert(to.extents.end(), letters.ellipsis.begin(), letters.ellipsis.end());
  add(einsum.output.after);
  return {to};
}

// Strides of a term along all axes of the loop: `...`, then the letters in alphabetical order.
std::vector<int64_t> loop_strides(const EinsumTerm& term,
                                  const Extents& extents,
                                  const Letters& letters) {
  std::vector<int64_t> strides(letters.ellipsis.size() + letters.extents.size(), 0);
  const std::vector<int64_t> term_strides = strides_of(extents);
  const size_t ellipsis_rank = extents.size() - term.before.size() - term.after.size();
  const auto add = [&](char letter, size_t axis) {
    const auto found = letters.extents.find(letter);
    const auto number = static_cast<size_t>(std::distance(letters.extents.begin(), found));
    if (extents[axis] != 1) strides[letters.ellipsis.size() + number] += term_strides[axis];
  };
  for (size_t i = 0; i < term.before.size(); ++i) add(term.before[i], i);
  for (size_t i = 0; i < ellipsis_rank; ++i)
    if (extents[term.before.size() + i] != 1)
      strides[letters.ellipsis.size() - ellipsis_rank + i] = term_strides[term.before.size() + i];
  for (size_t i = 0; i < term.after.size(); ++i)
    add(term.after[i], term.before.size() + ellipsis_rank + i);
  return strides;
}

std::vector<Array> evaluate_einsum(const NodeView& node, const std::vector<Form>& outputs) {
  const Einsum einsum = parse_einsum(node);
  const Letters letters = letters_of(node, einsum);
  Extents loop = letters.ellipsis;
  for (const auto& [letter, extent] : letters.extents) loop.push_back(extent);
  const int64_t count = checked_elements(node, loop);
  if (count > kMaxTerms) node.refuse("too large to be computed before training starts");
  std::vector<double> products(static_cast<size_t>(count), 1);
  for (size_t index = 0; index < node.inputs(); ++index) {
    const std::vector<int64_t> strides =
        loop_strides(einsum.inputs[index], node.extents(index), letters);
    const std::vector<double> values = node.array(index).as_double();
    auto next = products.begin();
    for_each_offset(loop, strides, 0, 0, count, [&](int64_t offset) {
      *next++ *= values[static_cast<size_t>(offset)];
    });
  }
  std::vector<double> sums(static_cast<size_t>(elements(outputs[0].extents)), 0);
  auto next = products.begin();
  for_each_offset(loop,
                  loop_strides(einsum.output, outputs[0].extents, letters),
                  0,
                  0,
                  count,
                  [&](int64_t offset) { sums[static_cast<size_t>(offset)] += *next++; });
  return {array_from(outputs[0].type, outputs[0].extents, sums)};
}

constexpr Op kOps[] = {
    {"MatMul", rule_mat_mul, evaluate_mat_mul},
    {"Gemm", rule_gemm, evaluate_gemm},
    {"Einsum", rule_einsum, evaluate_einsum},
};

}  // namespace

std::span<const Op> product_ops() { return kOps; }

}  // namespace lockstep::onnx

// Matrix products: MatMul and Gemm, which are linear layers if a factor is a parameter.

#include <algorithm>
#include <optional>
#include <string>

#include "models/onnx/nodes/attention.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

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

// The matrices of a value. A vector becomes one row or one column.
Layouts::Matrices operand(Lowering& lowering, const Node& node, int number, bool row) {
  if (lowering.value(number).extents.size() > 1) return lowering.layouts().matrices(number);
  graph::GraphBuilder& builder = lowering.builder();
  const TensorId x = lowering.layouts().plain(number);
  const int64_t n = builder.shape(x).elements();
  const std::string name = fmt::format("{}.{}", lowering.name_of(node), row ? "row" : "column");
  return {ops::reshape(builder, name, x, row ? Shape{1, n} : Shape{n, 1}), false};
}

// A constant scale of the product, and the value that has it. If the only reader multiplies or
// divides the product by a number, that node is fused.
struct Scaled {
  float scale = 1;
  int output;
};

Scaled scale_of(Lowering& lowering, int product) {
  const Node* reader = lowering.readers().only_reader(product);
  if (!is_op(reader, "Mul") && !is_op(reader, "Div")) return {1, product};
  const int first = lowering.readers().origin_of(reader->input(0));
  const bool is_first = first == product;
  if (reader->op == "Div" && !is_first) return {1, product};
  const auto factor =
      number_of(lowering.value(is_first ? lowering.readers().origin_of(reader->input(1)) : first));
  if (!factor || lowering.value(reader->output(0)).extents != lowering.value(product).extents)
    return {1, product};
  lowering.fusion().mark_fused(*reader);
  return {reader->op == "Mul" ? *factor : 1 / *factor, reader->output(0)};
}

// Fuses a constant scale, or the complete attention that begins with this product.
void lower_batched_mat_mul(Lowering& lowering, const Node& node) {
  require_floating(lowering, node);
  if (lower_decomposed_attention(lowering, node)) return;
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const auto [a, a_transposed] = operand(lowering, node, node.input(0), true);
  const auto [b, b_transposed] = operand(lowering, node, node.input(1), false);
  const auto [scale, output] = scale_of(lowering, node.output(0));
  TensorId y = ops::batched_matmul(builder, name, a, b, a_transposed, b_transposed, scale);
  const Shape shape = shape_of(lowering.value(output));
  y = shaped(builder, name + ".extents", y, shape);
  lowering.layouts().set(output, y);
}

// alpha op(A) op(B) + beta C.
void lower_batched_gemm(Lowering& lowering, const Node& node) {
  require_floating(lowering, node);
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Layouts::Matrices a = lowering.layouts().matrices(node.input(0)),
                          b = lowering.layouts().matrices(node.input(1));
  TensorId y = ops::batched_matmul(builder,
                                   name,
                                   a.tensor,
                                   b.tensor,
                                   a.transposed != (node.integer("transA", 0) != 0),
                                   b.transposed != (node.integer("transB", 0) != 0),
                                   node.number("alpha", 1));
  if (node.input(2) >= 0) {
    graph::PointwiseProgram sum;
    const int product = sum.input(0);
    const int added = sum.append(
        graph::PointwiseFunction::kMul, sum.input(1), sum.constant(node.number("beta", 1)));
    sum.append(graph::PointwiseFunction::kAdd, product, added);
    y = ops::pointwise(builder, name + ".sum", {y, input_of(lowering, node, 2)}, sum);
  }
  set_output(lowering, node, y);
}

// The storage of a linear layer's weight (O, I). None if the value is not a matrix of parameters,
// or if another op uses it with another storage.
std::optional<Storage> matrix_storage(Lowering& lowering, int number, bool transposed_by_node) {
  const ParameterSource source = lowering.readers().source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents.size() != 2) return std::nullopt;
  const Storage storage =
      source.transposed != transposed_by_node ? Storage::kAsInFile : Storage::kTransposed;
  if (!lowering.parameters().can_have(source.value, storage)) return std::nullopt;
  return storage;
}

// The bias with this many elements; kNoTensor if the value is not such a parameter.
TensorId bias_of(Lowering& lowering, int number, int64_t outputs) {
  if (number < 0) return kNoTensor;
  const ParameterSource source = lowering.readers().source_of(number);
  if (source.value < 0 || lowering.value(source.value).extents != Extents{outputs})
    return kNoTensor;
  return lowering.parameters().get(source.value);
}

// Appends x weight^T + bias, as the value `output`.
void append_linear(
    Lowering& lowering, const Node& node, int x, TensorId weight, TensorId bias, int output) {
  graph::GraphBuilder& builder = lowering.builder();
  TensorId input = lowering.layouts().plain(x);
  const std::string name = lowering.name_of(node);
  const Shape shape = shape_of(lowering.value(output));
  // The op linear may read a sample of more than 2 axes as one row, so it gets rows.
  if (builder.shape(input).rank() != 2)
    input = ops::reshape(builder,
                         name + ".rows",
                         input,
                         {builder.shape(input).rows(), builder.shape(input).columns()});
  TensorId y = ops::linear(builder, name, input, weight, bias, Activation::kNone);
  y = shaped(builder, name + ".extents", y, shape);
  lowering.layouts().set(output, y);
}

void lower_gemm(Lowering& lowering, const Node& node) {
  const auto storage = matrix_storage(lowering, node.input(1), node.integer("transB", 0) != 0);
  if (!storage || node.number("alpha", 1) != 1 || node.integer("transA", 0) != 0)
    return lower_batched_gemm(lowering, node);
  const int64_t outputs = lowering.value(node.output(0)).extents.back();
  const TensorId bias = bias_of(lowering, node.input(2), outputs);
  if (node.input(2) >= 0 && (bias == kNoTensor || node.number("beta", 1) != 1))
    return lower_batched_gemm(lowering, node);
  const TensorId weight =
      lowering.parameters().get(lowering.readers().source_of(node.input(1)).value, *storage);
  append_linear(lowering, node, node.input(0), weight, bias, node.output(0));
}

// Fuses the addition of a bias, if that is the only reader.
void lower_mat_mul(Lowering& lowering, const Node& node) {
  const auto storage = matrix_storage(lowering, node.input(1), false);
  if (!storage) return lower_batched_mat_mul(lowering, node);
  const TensorId weight =
      lowering.parameters().get(lowering.readers().source_of(node.input(1)).value, *storage);
  const int64_t outputs = lowering.builder().shape(weight)[0];
  const Node* reader = lowering.readers().only_reader(node.output(0));
  if (is_op(reader, "Add")) {
    const int other = lowering.readers().other_input(*reader, node.output(0));
    const TensorId bias = bias_of(lowering, other, outputs);
    if (bias != kNoTensor) {
      lowering.fusion().mark_fused(*reader);
      return append_linear(lowering, node, node.input(0), weight, bias, reader->output(0));
    }
  }
  append_linear(lowering, node, node.input(0), weight, kNoTensor, node.output(0));
}

constexpr NodeType kNodes[] = {
    {"MatMul", rule_mat_mul, lower_mat_mul, evaluate_mat_mul},
    {"Gemm", rule_gemm, lower_gemm, evaluate_gemm},
};

}  // namespace

std::span<const NodeType> product_nodes() { return kNodes; }

}  // namespace lockstep::onnx

// Products of two computed tensors: MatMul, Gemm and Einsum.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/onnx/constants.h"
#include "models/onnx/lowering/attention.h"
#include "models/onnx/lowering/layers.h"
#include "models/onnx/lowering/pointwise_functions.h"
#include "models/onnx/rules/einsum.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

// The matrices of a value. A vector becomes one row or one column.
Lowering::Matrices operand(Lowering& lowering, const Node& node, int number, bool row) {
  if (lowering.value(number).extents.size() > 1) return lowering.matrices(number);
  GraphBuilder& builder = lowering.builder();
  const TensorId x = lowering.plain(number);
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
  const Node* reader = lowering.only_reader(product);
  if (!is_op(reader, "Mul") && !is_op(reader, "Div")) return {1, product};
  const int first = lowering.origin_of(reader->input(0));
  const bool is_first = first == product;
  if (reader->op == "Div" && !is_first) return {1, product};
  const auto factor =
      number_of(lowering.value(is_first ? lowering.origin_of(reader->input(1)) : first));
  if (!factor || lowering.value(reader->output(0)).extents != lowering.value(product).extents)
    return {1, product};
  lowering.mark_fused(*reader);
  return {reader->op == "Mul" ? *factor : 1 / *factor, reader->output(0)};
}

void require_floating(const Lowering& lowering, const Node& node) {
  if (is_integer(lowering.value(node.output(0)).type))
    refuse(node, "multiplies integer matrices, which is not supported");
}

}  // namespace

// Fuses a constant scale, or the complete attention that begins with this product.
void lower_batched_mat_mul(Lowering& lowering, const Node& node) {
  require_floating(lowering, node);
  if (lower_decomposed_attention(lowering, node)) return;
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const auto [a, a_transposed] = operand(lowering, node, node.input(0), true);
  const auto [b, b_transposed] = operand(lowering, node, node.input(1), false);
  const auto [scale, output] = scale_of(lowering, node.output(0));
  TensorId y = ops::batched_matmul(builder, name, a, b, a_transposed, b_transposed, scale);
  const Shape shape = shape_of(lowering.value(output));
  if (builder.shape(y) != shape) y = ops::reshape(builder, name + ".extents", y, shape);
  lowering.set(output, y);
}

// alpha op(A) op(B) + beta C.
void lower_batched_gemm(Lowering& lowering, const Node& node) {
  require_floating(lowering, node);
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Lowering::Matrices a = lowering.matrices(node.input(0)),
                           b = lowering.matrices(node.input(1));
  TensorId y = ops::batched_matmul(builder,
                                   name,
                                   a.tensor,
                                   b.tensor,
                                   a.transposed != (node.integer("transA", 0) != 0),
                                   b.transposed != (node.integer("transB", 0) != 0),
                                   node.number("alpha", 1));
  if (node.input(2) >= 0) {
    PointwiseProgram sum;
    const int product = sum.input(0);
    const int added =
        sum.append(PointwiseFunction::kMul, sum.input(1), sum.constant(node.number("beta", 1)));
    sum.append(PointwiseFunction::kAdd, product, added);
    y = ops::pointwise(builder, name + ".sum", {y, lowering.plain(node.input(2))}, sum);
  }
  lowering.set(node.output(0), y);
}

namespace {

// A tensor whose axes have letters. Axes of `...` have digits, counted from the last axis.
struct Lettered {
  TensorId tensor;
  std::string letters;
};

class EinsumLowering {
 public:
  EinsumLowering(Lowering& lowering, const Node& node)
      : lowering_(lowering),
        builder_(lowering.builder()),
        node_(node),
        name_(lowering.name_of(node)) {}

  void run() {
    const Einsum equation = parse_einsum(NodeView(node_, lowering_.network().values));
    std::vector<Lettered> operands;
    size_t ellipsis_rank = 0;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      operands.push_back({lowering_.plain(node_.input(i)), letters(equation.inputs[i], i)});
      for (const char letter : operands.back().letters)
        if (std::isdigit(letter) != 0)
          ellipsis_rank = std::max<size_t>(ellipsis_rank, letter - '0' + 1u);
      require_extents(operands.back());
    }
    output_ = equation.output.before;
    if (equation.output.ellipsis)
      for (size_t i = ellipsis_rank; i-- > 0;) output_ += static_cast<char>('0' + i);
    output_ += equation.output.after;
    Lettered product = summed(operands, 0, operands[0], "");
    for (size_t i = 1; i < operands.size(); ++i)
      product = times(operands, i, product, summed(operands, i, operands[i], product.letters));
    lowering_.set(node_.output(0), ordered(product, output_).tensor);
  }

 private:
  std::string letters(const EinsumTerm& term, size_t index) {
    std::string all = term.before;
    const size_t rank = lowering_.value(node_.input(index)).extents.size();
    const size_t named = term.before.size() + term.after.size();
    if (term.ellipsis)
      for (size_t i = rank - named; i-- > 0;) all += static_cast<char>('0' + i);
    all += term.after;
    std::string sorted = all;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end())
      refuse(node_, "equation: takes a diagonal; allowed: products and sums");
    return all;
  }

  // A letter must have the same extent in all operands.
  void require_extents(const Lettered& operand) {
    for (size_t i = 0; i < operand.letters.size(); ++i) {
      const int64_t extent = builder_.shape(operand.tensor)[static_cast<int>(i)];
      if (extents_.emplace(operand.letters[i], extent).first->second != extent)
        refuse(node_, "equation: an axis is broadcast, which is not supported");
    }
  }

  // Whether the output or an operand after number `last` has the letter.
  bool is_needed(const std::vector<Lettered>& operands, size_t last, char letter) const {
    if (output_.find(letter) != std::string::npos) return true;
    for (size_t i = last + 1; i < operands.size(); ++i)
      if (operands[i].letters.find(letter) != std::string::npos) return true;
    return false;
  }

  // Sums `operand` over the axes that neither the output, nor an operand after number `last`, nor
  // the product with a tensor of the letters `product` needs.
  Lettered summed(const std::vector<Lettered>& operands,
                  size_t last,
                  Lettered operand,
                  const std::string& product) {
    std::vector<int> axes;
    std::string kept;
    for (size_t i = 0; i < operand.letters.size(); ++i) {
      const char letter = operand.letters[i];
      if (is_needed(operands, last, letter) || product.find(letter) != std::string::npos)
        kept += letter;
      else
        axes.push_back(static_cast<int>(i));
    }
    if (!axes.empty())
      operand.tensor =
          ops::reduce(builder_, name_ + ".sum", operand.tensor, ReduceKind::kSum, axes, false);
    operand.letters = kept;
    return operand;
  }

  Lettered ordered(const Lettered& x, const std::string& letters) {
    if (x.letters == letters) return x;
    std::vector<int> permutation;
    for (const char letter : letters)
      permutation.push_back(static_cast<int>(x.letters.find(letter)));
    return {ops::transpose(builder_, name_ + ".order", x.tensor, permutation), letters};
  }

  // The tensor as (batch, rows, columns); each of the three merges the axes of these letters.
  TensorId matrices(const Lettered& x,
                    const std::string& batch,
                    const std::string& rows,
                    const std::string& columns) {
    const Lettered order = ordered(x, batch + rows + columns);
    return ops::reshape(
        builder_, name_ + ".matrices", order.tensor, {count(batch), count(rows), count(columns)});
  }

  int64_t count(const std::string& letters) const {
    int64_t product = 1;
    for (const char letter : letters) product *= extents_.at(letter);
    return product;
  }

  Lettered times(const std::vector<Lettered>& operands,
                 size_t last,
                 const Lettered& a,
                 const Lettered& b) {
    std::string batch, depth, rows, columns;
    for (const char letter : a.letters) {
      const bool shared = b.letters.find(letter) != std::string::npos;
      (!shared ? rows : is_needed(operands, last, letter) ? batch : depth) += letter;
    }
    for (const char letter : b.letters)
      if (a.letters.find(letter) == std::string::npos) columns += letter;
    const std::string letters = batch + rows + columns;
    if (static_cast<int>(letters.size()) > Shape::kMaxRank)
      refuse(node_,
             fmt::format("equation: an intermediate product has {} axes; allowed: at most {}",
                         letters.size(),
                         Shape::kMaxRank));
    const TensorId y = ops::batched_matmul(builder_,
                                           name_,
                                           matrices(a, batch, rows, depth),
                                           matrices(b, batch, depth, columns),
                                           false,
                                           false,
                                           1);
    Shape shape;
    for (const char letter : letters) shape.append(extents_.at(letter));
    return {ops::reshape(builder_, name_ + ".axes", y, shape), letters};
  }

  Lowering& lowering_;
  GraphBuilder& builder_;
  const Node& node_;
  std::string name_, output_;
  std::map<char, int64_t> extents_;
};

}  // namespace

// Multiplies the operands pairwise, from left to right.
void lower_einsum(Lowering& lowering, const Node& node) {
  require_floating(lowering, node);
  EinsumLowering(lowering, node).run();
}

}  // namespace lockstep::onnx

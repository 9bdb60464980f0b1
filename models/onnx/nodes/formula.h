#pragma once
// The program of an elementwise node, written as a formula (PointwiseOf). Programs distinguish
// floating-point numbers, integers, and booleans, which are 1 or 0. At kinks, derivatives are those
// of PyTorch.

#include <utility>
#include <vector>

#include "models/onnx/nodes/node_type.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::onnx {

class Formula {
  using F = graph::PointwiseFunction;

 public:
  // `from` and `to` are the types of the node's first input and of its output, `operands` the
  // instructions of its inputs (-1: absent). Borrows the program and the node.
  Formula(graph::PointwiseProgram& program,
          const Node& node,
          ElementType from,
          ElementType to,
          std::vector<int> operands)
      : program_(program), node_(node), from_(from), to_(to), operands_(std::move(operands)) {}

  const Node& node() const { return node_; }
  ElementType from() const { return from_; }
  ElementType to() const { return to_; }
  size_t operands() const { return operands_.size(); }
  int x(size_t index = 0) const { return operands_[index]; }

  int number(double value) { return program_.constant(static_cast<float>(value)); }
  int attribute(const char* name, float otherwise) { return number(node_.number(name, otherwise)); }
  int of(F function, int a, int b = -1) { return program_.append(function, a, b); }
  int add(int a, int b) { return program_.append(F::kAdd, a, b); }
  int sub(int a, int b) { return program_.append(F::kSub, a, b); }
  int mul(int a, int b) { return program_.append(F::kMul, a, b); }
  int div(int a, int b) { return program_.append(F::kDiv, a, b); }
  int less(int a, int b) { return program_.append(F::kLess, a, b); }
  int at_most(int a, int b) { return program_.append(F::kLessOrEqual, a, b); }
  int where(int condition, int yes, int no) {
    return program_.append(F::kWhere, condition, yes, no);
  }
  // e^a - 1 for a <= 0 as 2 t / (1 - t), t = tanh(a / 2): accurate near 0. 0 for a > 0, so that
  // nothing overflows in elements that use another branch.
  int exp_minus_one(int a) {
    const int t = of(F::kTanh, mul(program_.append(F::kMin, a, number(0)), number(0.5)));
    return div(mul(number(2), t), sub(number(1), t));
  }
  // x if it is above 0, else `otherwise`.
  int positive_or(int x, int otherwise) { return where(less(number(0), x), x, otherwise); }
  // x, clamped to [0, 1].
  int within_one(int x) {
    return where(at_most(x, number(0)), number(0), where(at_most(number(1), x), number(1), x));
  }
  int swish(int x, double alpha) { return mul(x, of(F::kSigmoid, mul(number(alpha), x))); }

 private:
  graph::PointwiseProgram& program_;
  const Node& node_;
  ElementType from_, to_;
  std::vector<int> operands_;
};

template <graph::PointwiseFunction kFunction>
int unary(Formula& f) {
  return f.of(kFunction, f.x());
}

template <graph::PointwiseFunction kFunction>
int binary(Formula& f) {
  return f.of(kFunction, f.x(), f.x(1));
}

// The function with its operands swapped.
template <graph::PointwiseFunction kFunction>
int reversed(Formula& f) {
  return f.of(kFunction, f.x(1), f.x());
}

// f(f(x0, x1), x2) ...
template <graph::PointwiseFunction kFunction>
int chain(Formula& f) {
  int result = f.of(graph::PointwiseFunction::kIdentity, f.x());
  for (size_t i = 1; i < f.operands(); ++i) result = f.of(kFunction, result, f.x(i));
  return result;
}

}  // namespace lockstep::onnx

#pragma once
// Helpers to write the programs of elementwise nodes as formulas (PointwiseOf). At kinks,
// derivatives are those of PyTorch.

#include <vector>

#include "models/onnx/nodes/node_type.h"

namespace lockstep::onnx {

using Operands = std::vector<int>;

class Formula {
  using F = graph::PointwiseFunction;

 public:
  explicit Formula(graph::PointwiseProgram& program) : program_(program) {}

  int number(double value) { return program_.constant(static_cast<float>(value)); }
  int of(F function, int a) { return program_.append(function, a); }
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
};

template <graph::PointwiseFunction kFunction>
int unary(graph::PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(kFunction, operands[0]);
}

template <graph::PointwiseFunction kFunction>
int binary(graph::PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(kFunction, operands[0], operands[1]);
}

// The function with its operands swapped.
template <graph::PointwiseFunction kFunction>
int reversed(graph::PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(kFunction, operands[1], operands[0]);
}

// f(f(x0, x1), x2) ...
template <graph::PointwiseFunction kFunction>
int chain(graph::PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  int result = program.append(graph::PointwiseFunction::kIdentity, operands[0]);
  for (size_t i = 1; i < operands.size(); ++i)
    result = program.append(kFunction, result, operands[i]);
  return result;
}

}  // namespace lockstep::onnx

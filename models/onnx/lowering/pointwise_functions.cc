// At kinks, derivatives are those of PyTorch.
#include "models/onnx/lowering/pointwise_functions.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {
namespace {

using F = PointwiseFunction;
using Operands = std::vector<int>;

// Helper to write programs as formulas.
class Formula {
 public:
  explicit Formula(PointwiseProgram& program) : program_(program) {}

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
  PointwiseProgram& program_;
};

template <F kFunction>
int one(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(kFunction, operands[0]);
}

template <F kFunction>
int two(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(kFunction, operands[0], operands[1]);
}

// The function with its operands swapped.
template <F kFunction>
int reversed(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(kFunction, operands[1], operands[0]);
}

// f(f(x0, x1), x2) ...
template <F kFunction>
int chain(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  int result = program.append(F::kIdentity, operands[0]);
  for (size_t i = 1; i < operands.size(); ++i)
    result = program.append(kFunction, result, operands[i]);
  return result;
}

int mean(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  const int sum = chain<F::kAdd>(program, node, operands);
  return Formula(program).div(sum, program.constant(static_cast<float>(operands.size())));
}

// Integers are divided towards zero.
int quotient(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  const int result = program.append(F::kDiv, operands[0], operands[1]);
  return is_integer(node.to) ? program.append(F::kTrunc, result) : result;
}

int remainder(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  const F function = node.node.integer("fmod", 0) != 0 ? F::kFmod : F::kMod;
  return program.append(function, operands[0], operands[1]);
}

int where(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  return program.append(F::kWhere, operands[0], operands[1], operands[2]);
}

int cast(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  const int x = operands[0];
  if (node.to == ElementType::kBool && node.from != ElementType::kBool)
    return program.append(F::kNot, program.append(F::kNot, x));
  return program.append(is_integer(node.to) && is_floating(node.from) ? F::kTrunc : F::kIdentity,
                        x);
}

int is_infinite(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int x = operands[0];
  const bool negative = node.node.integer("detect_negative", 1) != 0;
  const bool positive = node.node.integer("detect_positive", 1) != 0;
  if (negative && positive) return f.of(F::kIsInf, x);
  if (!negative && !positive) return f.number(0);
  const int side = positive ? f.less(f.number(0), x) : f.less(x, f.number(0));
  return program.append(F::kAnd, f.of(F::kIsInf, x), side);
}

// The bounds are attributes before opset 11. The derivative at a bound is 1.
int clip(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const auto bound = [&](size_t index, const char* attribute) {
    if (index < operands.size() && operands[index] >= 0) return operands[index];
    return node.node.has(attribute) ? f.number(node.node.number(attribute, 0)) : -1;
  };
  const int min = bound(1, "min"), max = bound(2, "max");
  int x = operands[0];
  if (min >= 0) x = f.where(f.less(x, min), min, x);
  if (max >= 0) x = f.where(f.less(max, x), max, x);
  return program.append(F::kIdentity, x);
}

int relu(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  Formula f(program);
  return f.where(f.at_most(operands[0], f.number(0)), f.number(0), operands[0]);
}

int gelu(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int x = operands[0], half = f.mul(f.number(0.5), x);
  if (node.node.text("approximate", "none") != "tanh") {
    const int y = f.of(F::kErf, f.mul(f.number(std::sqrt(0.5)), x));
    return f.mul(half, f.add(f.number(1), y));
  }
  const int cube = f.mul(f.mul(x, x), x);
  const int inner = f.add(x, f.mul(f.number(0.044715), cube));
  const int y = f.of(F::kTanh, f.mul(f.number(std::sqrt(2 / 3.14159265358979323846)), inner));
  return f.mul(half, f.add(f.number(1), y));
}

int swish(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  return Formula(program).swish(operands[0], node.node.number("alpha", 1));
}

int leaky_relu(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  return f.positive_or(operands[0], f.mul(f.number(node.node.number("alpha", 0.01f)), operands[0]));
}

int prelu(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  Formula f(program);
  return f.positive_or(operands[0], f.mul(operands[1], operands[0]));
}

int elu(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int alpha = f.number(node.node.number("alpha", 1));
  return f.positive_or(operands[0], f.mul(alpha, f.exp_minus_one(operands[0])));
}

int celu(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int alpha = f.number(node.node.number("alpha", 1));
  const int below = f.mul(alpha, f.exp_minus_one(f.div(operands[0], alpha)));
  return f.positive_or(operands[0], below);
}

int selu(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int alpha = f.number(node.node.number("alpha", 1.67326319217681884765625f));
  const int gamma = f.number(node.node.number("gamma", 1.05070102214813232421875f));
  return f.mul(gamma, f.positive_or(operands[0], f.mul(alpha, f.exp_minus_one(operands[0]))));
}

int thresholded_relu(PointwiseProgram& program,
                     const PointwiseNode& node,
                     const Operands& operands) {
  Formula f(program);
  const int alpha = f.number(node.node.number("alpha", 1));
  return f.where(f.less(alpha, operands[0]), operands[0], f.number(0));
}

int shrink(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int x = operands[0], bias = f.number(node.node.number("bias", 0));
  const double limit = node.node.number("lambd", 0.5f);
  const int above = f.where(f.less(f.number(limit), x), f.sub(x, bias), f.number(0));
  return f.where(f.less(x, f.number(-limit)), f.add(x, bias), above);
}

int hard_sigmoid(PointwiseProgram& program, const PointwiseNode& node, const Operands& operands) {
  Formula f(program);
  const int alpha = f.number(node.node.number("alpha", 0.2f));
  const int beta = f.number(node.node.number("beta", 0.5f));
  return f.within_one(f.add(f.mul(alpha, operands[0]), beta));
}

int hard_swish(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  Formula f(program);
  const int x = operands[0];
  const int share = f.add(f.mul(f.number(1.0 / 6), x), f.number(0.5));
  const int below = f.where(f.less(x, f.number(-3)), f.number(0), f.mul(x, share));
  return f.where(f.less(f.number(3), x), x, below);
}

int softsign(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  Formula f(program);
  return f.div(operands[0], f.add(f.number(1), f.of(F::kAbs, operands[0])));
}

int mish(PointwiseProgram& program, const PointwiseNode&, const Operands& operands) {
  Formula f(program);
  return f.mul(operands[0], f.of(F::kTanh, f.of(F::kSoftplus, operands[0])));
}

}  // namespace

bool is_integer(ElementType type) { return !is_floating(type) && type != ElementType::kBool; }

PointwiseOf pointwise_of(const std::string& op) {
  static const std::map<std::string, PointwiseOf> kTable = {
      {"Abs", one<F::kAbs>},
      {"Acos", one<F::kAcos>},
      {"Acosh", one<F::kAcosh>},
      {"Add", two<F::kAdd>},
      {"And", two<F::kAnd>},
      {"Asin", one<F::kAsin>},
      {"Asinh", one<F::kAsinh>},
      {"Atan", one<F::kAtan>},
      {"Atanh", one<F::kAtanh>},
      {"Cast", cast},
      {"CastLike", cast},
      {"Ceil", one<F::kCeil>},
      {"Celu", celu},
      {"Clip", clip},
      {"Cos", one<F::kCos>},
      {"Cosh", one<F::kCosh>},
      {"Div", quotient},
      {"Elu", elu},
      {"Equal", two<F::kEqual>},
      {"Erf", one<F::kErf>},
      {"Exp", one<F::kExp>},
      {"Floor", one<F::kFloor>},
      {"Gelu", gelu},
      {"Greater", reversed<F::kLess>},
      {"GreaterOrEqual", reversed<F::kLessOrEqual>},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"IsInf", is_infinite},
      {"IsNaN", one<F::kIsNan>},
      {"LeakyRelu", leaky_relu},
      {"Less", two<F::kLess>},
      {"LessOrEqual", two<F::kLessOrEqual>},
      {"Log", one<F::kLog>},
      {"Max", chain<F::kMax>},
      {"Mean", mean},
      {"Min", chain<F::kMin>},
      {"Mish", mish},
      {"Mod", remainder},
      {"Mul", two<F::kMul>},
      {"Neg", one<F::kNeg>},
      {"Not", one<F::kNot>},
      {"Or", two<F::kOr>},
      {"PRelu", prelu},
      {"Pow", two<F::kPow>},
      {"Reciprocal", one<F::kReciprocal>},
      {"Relu", relu},
      {"Round", one<F::kRound>},
      {"Selu", selu},
      {"Shrink", shrink},
      {"Sigmoid", one<F::kSigmoid>},
      {"Sign", one<F::kSign>},
      {"Sin", one<F::kSin>},
      {"Sinh", one<F::kSinh>},
      {"Softplus", one<F::kSoftplus>},
      {"Softsign", softsign},
      {"Sqrt", one<F::kSqrt>},
      {"Sub", two<F::kSub>},
      {"Sum", chain<F::kAdd>},
      {"Swish", swish},
      {"Tan", one<F::kTan>},
      {"Tanh", one<F::kTanh>},
      {"ThresholdedRelu", thresholded_relu},
      {"Where", where},
      {"Xor", two<F::kXor>},
  };
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx

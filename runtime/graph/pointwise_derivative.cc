// Gradients of pointwise programs in reverse mode: from the last instruction to the first, each one
// passes the gradient of its value to its operands.
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::graph {
namespace {

using F = PointwiseFunction;

// Appends the gradient that an instruction passes to operand k, given the gradient g of its value
// y; a and b are its operands.
class Slopes {
 public:
  explicit Slopes(PointwiseProgram& program) : program_(program) {}

  // Returns -1 if the gradient is zero.
  int of(F function, int k, int g, int y, int a, int b) {
    switch (function) {
      case F::kIdentity: return g;
      case F::kNeg: return neg(g);
      case F::kAbs: return mul(g, f(F::kSign, a));
      case F::kReciprocal: return neg(mul(g, mul(y, y)));
      case F::kSqrt: return div(mul(g, number(0.5f)), y);
      case F::kExp: return mul(g, y);
      case F::kLog: return div(g, a);
      case F::kSin: return mul(g, f(F::kCos, a));
      case F::kCos: return neg(mul(g, f(F::kSin, a)));
      case F::kTan: return mul(g, add(number(1), mul(y, y)));
      case F::kAsin: return div(g, f(F::kSqrt, one_minus_square(a)));
      case F::kAcos: return neg(div(g, f(F::kSqrt, one_minus_square(a))));
      case F::kAtan: return div(g, add(number(1), mul(a, a)));
      case F::kSinh: return mul(g, f(F::kCosh, a));
      case F::kCosh: return mul(g, f(F::kSinh, a));
      case F::kAsinh: return div(g, f(F::kSqrt, add(number(1), mul(a, a))));
      case F::kAcosh: return div(g, f(F::kSqrt, neg(one_minus_square(a))));
      case F::kAtanh: return div(g, one_minus_square(a));
      case F::kTanh: return mul(g, sub(number(1), mul(y, y)));
      case F::kSigmoid: return mul(g, mul(y, sub(number(1), y)));
      case F::kErf: return mul(g, mul(number(1.12837916710f), f(F::kExp, neg(mul(a, a)))));
      case F::kSoftplus: return mul(g, f(F::kSigmoid, a));
      case F::kAdd: return g;
      case F::kSub: return k == 0 ? g : neg(g);
      case F::kMul: return mul(g, k == 0 ? b : a);
      case F::kDiv: return k == 0 ? div(g, b) : neg(div(mul(g, y), b));
      case F::kPow: return k == 0 ? of_base(g, a, b) : of_exponent(g, y, a);
      case F::kMin: return k == 0 ? of_extreme(g, a, b) : of_extreme(g, b, a);
      case F::kMax: return k == 0 ? of_extreme(g, b, a) : of_extreme(g, a, b);
      case F::kFmod: return k == 0 ? g : neg(mul(g, f(F::kTrunc, div(a, b))));
      case F::kMod: return k == 0 ? g : neg(mul(g, f(F::kFloor, div(a, b))));
      case F::kWhere:
        if (k == 1) return where(a, g, number(0));
        return k == 2 ? where(a, number(0), g) : -1;
      default: return -1;  // piecewise constant
    }
  }

 private:
  int f(F function, int a) { return program_.append(function, a); }
  int number(float value) { return program_.constant(value); }
  int neg(int a) { return f(F::kNeg, a); }
  int add(int a, int b) { return program_.append(F::kAdd, a, b); }
  int sub(int a, int b) { return program_.append(F::kSub, a, b); }
  int mul(int a, int b) { return program_.append(F::kMul, a, b); }
  int div(int a, int b) { return program_.append(F::kDiv, a, b); }
  int where(int condition, int yes, int no) {
    return program_.append(F::kWhere, condition, yes, no);
  }
  // In two factors, which is accurate near 1.
  int one_minus_square(int a) { return mul(sub(number(1), a), add(number(1), a)); }

  // b a^(b - 1), and 0 if b is 0, for all a.
  int of_base(int g, int a, int b) {
    const int slope = mul(b, program_.append(F::kPow, a, sub(b, number(1))));
    return where(program_.append(F::kEqual, b, number(0)), number(0), mul(g, slope));
  }
  // y log(a), and 0 if y is 0.
  int of_exponent(int g, int y, int a) {
    const int slope = mul(y, f(F::kLog, a));
    return where(program_.append(F::kEqual, y, number(0)), number(0), mul(g, slope));
  }
  // The gradient if `less` < `more`, half of it if they are equal.
  int of_extreme(int g, int less, int more) {
    const int half = where(program_.append(F::kEqual, less, more), mul(g, number(0.5f)), number(0));
    return where(program_.append(F::kLess, less, more), g, half);
  }

  PointwiseProgram& program_;
};

// Which instructions depend on an input.
std::vector<bool> dependents(const PointwiseProgram& program, int input) {
  std::vector<bool> depend;
  for (const PointwiseInstruction& instruction : program.instructions()) {
    bool any = instruction.function == F::kInput && instruction.input == input;
    for (const int operand : instruction.operands)
      any |= operand >= 0 && depend[static_cast<size_t>(operand)];
    depend.push_back(any);
  }
  return depend;
}

}  // namespace

std::optional<PointwiseProgram> PointwiseProgram::derivative(int input) const {
  const PointwiseProgram forward = pruned();
  const std::vector<bool> depend = dependents(forward, input);
  const auto& all = forward.instructions();
  PointwiseProgram program;
  const int d_y = program.input(0);

  // The forward program is appended first; `value` has its instructions' numbers in the derivative.
  // The slopes share its values.
  std::vector<int> value;
  for (const PointwiseInstruction& instruction : all) {
    const auto at = [&](int k) {
      const int operand = instruction.operands[k];
      return operand < 0 ? -1 : value[static_cast<size_t>(operand)];
    };
    switch (instruction.function) {
      case F::kInput: value.push_back(program.input(instruction.input + 1)); break;
      case F::kConstant: value.push_back(program.constant(instruction.constant)); break;
      default: value.push_back(program.append(instruction.function, at(0), at(1), at(2)));
    }
  }

  std::vector<int> gradient(all.size(), -1);
  gradient[static_cast<size_t>(forward.result())] = d_y;
  Slopes slopes(program);
  for (size_t i = all.size(); i-- > 0;) {
    if (gradient[i] < 0 || !depend[i]) continue;
    if (all[i].function == F::kInput) {
      program.set_result(gradient[i]);
      return program.pruned();
    }
    int at[3] = {-1, -1, -1};
    for (int k = 0; k < 3; ++k) {
      if (all[i].operands[k] >= 0) at[k] = value[static_cast<size_t>(all[i].operands[k])];
    }
    for (int k = 0; k < 3; ++k) {
      const int operand = all[i].operands[k];
      if (operand < 0 || !depend[static_cast<size_t>(operand)]) continue;
      const int part = slopes.of(all[i].function, k, gradient[i], value[i], at[0], at[1]);
      int& sum = gradient[static_cast<size_t>(operand)];
      if (part >= 0) sum = sum < 0 ? part : program.append(F::kAdd, sum, part);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::graph

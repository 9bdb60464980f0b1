#pragma once
// The reference of `pointwise`, for its own test and for those of ops whose gradients use it: each
// function by itself, in double precision.

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "runtime/graph/ops/pointwise.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {

inline double unless_nan(double a, double b, double value) {
  return std::isnan(a) || std::isnan(b) ? a + b : value;
}

// What Python's % gives: math.fmod, moved to the sign of b.
inline double python_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && std::signbit(rest) != std::signbit(b) ? rest + b : rest;
}

struct FunctionCase {
  graph::PointwiseFunction function;
  std::function<double(double a, double b, double c)> value;
  double low, high;     // of all operands
  double error = 4;     // in units of kEps, of the value
  double absolute = 0;  // in units of kEps
  bool slope = true;    // has one, and no kink in (low, high)
};

inline const std::vector<FunctionCase>& functions() {
  using F = graph::PointwiseFunction;
  static const std::vector<FunctionCase> all = {
      {F::kNeg, [](double a, double, double) { return -a; }, -9, 9},
      {F::kAbs, [](double a, double, double) { return std::abs(a); }, 0.1, 9},
      {F::kSign,
       [](double a, double, double) { return std::isnan(a) ? a : (a > 0) - (a < 0); },
       -9,
       9,
       0,
       0,
       false},
      {F::kReciprocal, [](double a, double, double) { return 1 / a; }, 0.5, 4},
      {F::kSqrt, [](double a, double, double) { return std::sqrt(a); }, 0.1, 9},
      {F::kExp, [](double a, double, double) { return std::exp(a); }, -9, 9},
      {F::kLog, [](double a, double, double) { return std::log(a); }, 0.1, 9, 4, 1},
      {F::kSin, [](double a, double, double) { return std::sin(a); }, -9, 9, 4, 1},
      {F::kCos, [](double a, double, double) { return std::cos(a); }, -9, 9, 4, 1},
      {F::kTan, [](double a, double, double) { return std::tan(a); }, -1.3, 1.3, 8, 1},
      {F::kAsin, [](double a, double, double) { return std::asin(a); }, -0.9, 0.9, 8},
      {F::kAcos, [](double a, double, double) { return std::acos(a); }, -0.9, 0.9, 8},
      {F::kAtan, [](double a, double, double) { return std::atan(a); }, -9, 9, 8},
      {F::kSinh, [](double a, double, double) { return std::sinh(a); }, -9, 9, 8},
      {F::kCosh, [](double a, double, double) { return std::cosh(a); }, -9, 9, 8},
      {F::kAsinh, [](double a, double, double) { return std::asinh(a); }, -9, 9, 8, 1},
      {F::kAcosh, [](double a, double, double) { return std::acosh(a); }, 1.2, 9, 8, 2},
      {F::kAtanh, [](double a, double, double) { return std::atanh(a); }, -0.9, 0.9, 8, 1},
      {F::kTanh, [](double a, double, double) { return std::tanh(a); }, -9, 9, 8},
      {F::kSigmoid, [](double a, double, double) { return 1 / (1 + std::exp(-a)); }, -9, 9, 8},
      {F::kErf, [](double a, double, double) { return std::erf(a); }, -3, 3, 4},
      {F::kSoftplus, [](double a, double, double) { return std::log1p(std::exp(a)); }, -9, 9, 8},
      {F::kFloor, [](double a, double, double) { return std::floor(a); }, -9, 9, 0, 0, false},
      {F::kCeil, [](double a, double, double) { return std::ceil(a); }, -9, 9, 0, 0, false},
      {F::kTrunc, [](double a, double, double) { return std::trunc(a); }, -9, 9, 0, 0, false},
      {F::kRound, [](double a, double, double) { return std::nearbyint(a); }, -9, 9, 0, 0, false},
      {F::kNot, [](double a, double, double) { return a == 0; }, -2, 2, 0, 0, false},
      {F::kAdd, [](double a, double b, double) { return a + b; }, -9, 9},
      {F::kSub, [](double a, double b, double) { return a - b; }, -9, 9},
      {F::kMul, [](double a, double b, double) { return a * b; }, -9, 9},
      {F::kDiv, [](double a, double b, double) { return a / b; }, 0.5, 4},
      {F::kPow, [](double a, double b, double) { return std::pow(a, b); }, 0.2, 4, 4},
      {F::kMin, [](double a, double b, double) { return unless_nan(a, b, std::min(a, b)); }, -9, 9},
      {F::kMax, [](double a, double b, double) { return unless_nan(a, b, std::max(a, b)); }, -9, 9},
      {F::kFmod, [](double a, double b, double) { return std::fmod(a, b); }, 1.1, 1.9},
      {F::kMod, [](double a, double b, double) { return python_mod(a, b); }, 1.1, 1.9},
      {F::kLess, [](double a, double b, double) { return a < b; }, -9, 9, 0, 0, false},
      {F::kLessOrEqual, [](double a, double b, double) { return a <= b; }, -9, 9, 0, 0, false},
      {F::kEqual, [](double a, double b, double) { return a == b; }, -9, 9, 0, 0, false},
      {F::kAnd, [](double a, double b, double) { return a != 0 && b != 0; }, -2, 2, 0, 0, false},
      {F::kOr, [](double a, double b, double) { return a != 0 || b != 0; }, -2, 2, 0, 0, false},
      {F::kXor,
       [](double a, double b, double) { return (a != 0) != (b != 0); },
       -2,
       2,
       0,
       0,
       false},
      {F::kWhere, [](double a, double b, double c) { return a != 0 ? b : c; }, -9, 9},
      {F::kIsNan, [](double a, double, double) { return std::isnan(a); }, -9, 9, 0, 0, false},
      {F::kIsInf, [](double a, double, double) { return std::isinf(a); }, -9, 9, 0, 0, false},
      {F::kIdentity, [](double a, double, double) { return a; }, -9, 9},
  };
  return all;
}

inline const FunctionCase& case_of(graph::PointwiseFunction function) {
  return *std::find_if(functions().begin(), functions().end(), [=](const FunctionCase& each) {
    return each.function == function;
  });
}

inline double element_at(const void* data, DType type, int64_t i) {
  if (type == DType::kI32) return static_cast<const int32_t*>(data)[i];
  return static_cast<const double*>(data)[i];
}

// What an element of y is, and what a device may be off by, in units of kEps: each instruction adds
// its own error to what its operands' errors make of it.
struct PointwiseElement {
  double value, error;
};

inline PointwiseElement pointwise_element(const graph::PointwiseForward<double>& op, int64_t i) {
  int64_t offsets[graph::PointwiseCode::kMaxInputs] = {};
  for (int d = op.loops.rank - 1; d >= 0; i /= op.loops.extents[d--]) {
    for (int k = 0; k < op.code->inputs; ++k)
      offsets[k] += i % op.loops.extents[d] * op.loops.strides[k][d];
  }
  std::vector<PointwiseElement> elements;
  for (const graph::PointwiseInstruction& instruction : op.program->instructions()) {
    if (instruction.function == graph::PointwiseFunction::kInput) {
      const auto k = instruction.input;
      elements.push_back({element_at(op.inputs[k], op.input_types[k], offsets[k]), 0});
    } else if (instruction.function == graph::PointwiseFunction::kConstant) {
      elements.push_back({instruction.constant, 0});
    } else {
      const FunctionCase& function = case_of(instruction.function);
      double at[3] = {}, moved[3] = {};
      for (int k = 0; k < 3 && instruction.operands[k] >= 0; ++k)
        at[k] = elements[static_cast<size_t>(instruction.operands[k])].value;
      std::copy(at, at + 3, moved);
      const double value = function.value(at[0], at[1], at[2]);
      double error = function.error * std::abs(value) + function.absolute;
      for (int k = 0; k < 3 && instruction.operands[k] >= 0; ++k) {
        for (const double side : {-1.0, 1.0}) {
          const double by = elements[static_cast<size_t>(instruction.operands[k])].error * kEps;
          moved[k] = at[k] + side * by;
          error += std::abs(function.value(moved[0], moved[1], moved[2]) - value) / kEps;
          moved[k] = at[k];
        }
      }
      elements.push_back({value, error});
    }
  }
  return elements[static_cast<size_t>(op.program->result())];
}

inline void pointwise_reference(const graph::OpCall& call) {
  const graph::PointwiseForward<double> op{call};
  for (int64_t i = 0; i < op.n; ++i) {
    const double value = pointwise_element(op, i).value;
    if (op.y_type == DType::kI32) {
      static_cast<int32_t*>(op.y)[i] = static_cast<int32_t>(value);
    } else {
      static_cast<double*>(op.y)[i] = value;
    }
  }
}

}  // namespace lockstep::test

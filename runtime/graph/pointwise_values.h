#pragma once
// One function of a pointwise program on one element, in the arithmetic of T (float or double), on
// host and device.

#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/base/host_device.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::graph {

template <typename T>
LOCKSTEP_HD T pointwise_mod(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

template <typename T>
LOCKSTEP_HD T pointwise_softplus(T a) {
  return (a > 0 ? a : T(0)) + std::log1p(std::exp(-std::fabs(a)));
}

// Rounds towards zero; saturates outside of the range; 0 for NaN.
template <typename T>
LOCKSTEP_HD int32_t to_int32(T x) {
  if (x != x) return 0;
  if (x >= T(2147483648.0)) return 2147483647;
  if (x < T(-2147483648.0)) return -2147483647 - 1;
  return static_cast<int32_t>(x);
}

// Operands that the function does not have are not read.
template <typename T>
LOCKSTEP_HD T pointwise_value(PointwiseFunction function, T a, T b, T c) {
  using F = PointwiseFunction;
  switch (function) {
    case F::kIdentity: return a;
    case F::kNeg: return -a;
    case F::kAbs: return std::fabs(a);
    case F::kSign: return a > 0 ? T(1) : a < 0 ? T(-1) : a;
    case F::kReciprocal: return T(1) / a;
    case F::kSqrt: return std::sqrt(a);
    case F::kExp: return std::exp(a);
    case F::kLog: return std::log(a);
    case F::kSin: return std::sin(a);
    case F::kCos: return std::cos(a);
    case F::kTan: return std::tan(a);
    case F::kAsin: return std::asin(a);
    case F::kAcos: return std::acos(a);
    case F::kAtan: return std::atan(a);
    case F::kSinh: return std::sinh(a);
    case F::kCosh: return std::cosh(a);
    case F::kAsinh: return std::asinh(a);
    case F::kAcosh: return std::acosh(a);
    case F::kAtanh: return std::atanh(a);
    case F::kTanh: return std::tanh(a);
    case F::kSigmoid: return T(1) / (T(1) + std::exp(-a));
    case F::kErf: return std::erf(a);
    case F::kSoftplus: return pointwise_softplus(a);
    case F::kFloor: return std::floor(a);
    case F::kCeil: return std::ceil(a);
    case F::kTrunc: return std::trunc(a);
    case F::kRound: return std::rint(a);
    case F::kNot: return a == 0;
    case F::kIsNan: return a != a;
    case F::kIsInf: return std::fabs(a) == std::numeric_limits<T>::infinity();
    case F::kAdd: return a + b;
    case F::kSub: return a - b;
    case F::kMul: return a * b;
    case F::kDiv: return a / b;
    case F::kPow: return std::pow(a, b);
    case F::kMin: return a < b || a != a ? a : b;
    case F::kMax: return a > b || a != a ? a : b;
    case F::kFmod: return std::fmod(a, b);
    case F::kMod: return pointwise_mod(a, b);
    case F::kLess: return a < b;
    case F::kLessOrEqual: return a <= b;
    case F::kEqual: return a == b;
    case F::kAnd: return a != 0 && b != 0;
    case F::kOr: return a != 0 || b != 0;
    case F::kXor: return (a != 0) != (b != 0);
    case F::kWhere: return a != 0 ? b : c;
    default: return 0;
  }
}

}  // namespace lockstep::graph

#pragma once
// Activation functions in double precision, and the reference of their backward op.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/graph/ops/activation.h"

namespace lockstep::test {

inline double activation_value(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0 ? 0 : x;  // NaN passes
    case Activation::kGeluTanh:  // (1 + tanh u) / 2 = 1 / (1 + e^-2u), which keeps its accuracy in
                                 // the tail
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kTanh: return std::tanh(x);
    case Activation::kRelu6: return x < 0 ? 0 : (x > 6 ? 6 : x);
  }
  return std::nan("");
}

// The derivative at pre-activation x.
inline double activation_derivative(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return 1;
    case Activation::kRelu: return x > 0 ? 1 : 0;
    case Activation::kGeluTanh: {
      const double k = std::sqrt(2 / std::numbers::pi);
      const double tanh_u = std::tanh(k * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + tanh_u) + 0.5 * x * (1 - tanh_u * tanh_u) * k * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::kGeluErf:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
             x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
    case Activation::kRelu6: return x > 0 && x < 6 ? 1 : 0;
    case Activation::kTanh: {
      const double y = std::tanh(x);
      return 1 - y * y;
    }
  }
  return std::nan("");
}

// activation_backward for T = double. The derivative of tanh follows from its output, which is what
// is saved.
inline void activation_backward_reference(const graph::OpCall& call) {
  const graph::ActivationBackward<double> op{call};
  for (int64_t i = 0; i < op.n; ++i) {
    const double saved = op.saved[i];
    op.d_x[i] = op.d_y[i] * (op.activation == Activation::kTanh
                                 ? 1 - saved * saved
                                 : activation_derivative(op.activation, saved));
  }
}

}  // namespace lockstep::test

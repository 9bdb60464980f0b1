#pragma once
// Activations and their derivatives, element by element, in float. Only kernel files include this.

#include <cmath>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/cuda/launch.h"
#include "runtime/graph/activation.h"

namespace lockstep::cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// GELU's tanh form: (1 + tanh u) / 2 is the sigmoid of 2u, which stays accurate in the tail.
inline constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
inline constexpr float kCubic = 0.044715f;
__device__ __forceinline__ float gelu_sigmoid(float x) {
  return sigmoid(kTwoRootTwoOverPi * (x + kCubic * x * x * x));
}

inline constexpr float kRootHalf = 0.70710678118654752f;
inline constexpr float kInverseRootTwoPi = 0.39894228040143268f;

template <Activation kind>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kind == Activation::kRelu) return x < 0 ? 0 : x;  // propagates NaN
  if constexpr (kind == Activation::kRelu6) return x < 0 ? 0 : (x > 6 ? 6 : x);
  if constexpr (kind == Activation::kGeluTanh) return x * gelu_sigmoid(x);
  if constexpr (kind == Activation::kGeluErf) return 0.5f * x * erfcf(-x * kRootHalf);
  if constexpr (kind == Activation::kSilu) return x * sigmoid(x);
  if constexpr (kind == Activation::kTanh) return tanhf(x);
  return x;
}

// `saved` is the input if saves_pre_activation(kind), otherwise the output.
template <Activation kind>
__device__ __forceinline__ float derivative(float saved) {
  if constexpr (kind == Activation::kRelu) return saved > 0 ? 1 : 0;
  if constexpr (kind == Activation::kRelu6) return saved > 0 && saved < 6 ? 1 : 0;
  if constexpr (kind == Activation::kGeluTanh) {
    const float s = gelu_sigmoid(saved);
    const float slope = kTwoRootTwoOverPi * (1 + 3 * kCubic * saved * saved);
    return s + saved * s * (1 - s) * slope;
  }
  if constexpr (kind == Activation::kGeluErf)
    return 0.5f * erfcf(-saved * kRootHalf) +
           saved * kInverseRootTwoPi * expf(-0.5f * saved * saved);
  if constexpr (kind == Activation::kSilu) {
    const float s = sigmoid(saved);
    return s * (1 + saved * (1 - s));
  }
  if constexpr (kind == Activation::kTanh) return 1 - saved * saved;
  return 1;
}

// Calls f with the activation as a compile-time constant.
template <typename F>
void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::kNone: return f(std::integral_constant<Activation, Activation::kNone>());
    case Activation::kRelu: return f(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kGeluTanh:
      return f(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kGeluErf: return f(std::integral_constant<Activation, Activation::kGeluErf>());
    case Activation::kSilu: return f(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kTanh: return f(std::integral_constant<Activation, Activation::kTanh>());
    case Activation::kRelu6: return f(std::integral_constant<Activation, Activation::kRelu6>());
  }
  LOCKSTEP_REQUIRE(false && "a known activation");
}

}  // namespace lockstep::cuda

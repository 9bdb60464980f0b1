#include "runtime/cuda/ops/activation.h"

#include <cmath>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// GELU by tanh: (1 + tanh u) / 2 is the sigmoid of 2u, which keeps its accuracy in the tail.
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;
__device__ __forceinline__ float gelu_sigmoid(float x) {
  return sigmoid(kTwoRootTwoOverPi * (x + kCubic * x * x * x));
}

constexpr float kRootHalf = 0.70710678118654752f;
constexpr float kInverseRootTwoPi = 0.39894228040143268f;

template <Activation kind>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kind == Activation::kRelu) return x < 0 ? 0 : x;  // NaN passes
  if constexpr (kind == Activation::kRelu6) return x < 0 ? 0 : (x > 6 ? 6 : x);
  if constexpr (kind == Activation::kGeluTanh) return x * gelu_sigmoid(x);
  if constexpr (kind == Activation::kGeluErf) return 0.5f * x * erfcf(-x * kRootHalf);
  if constexpr (kind == Activation::kSilu) return x * sigmoid(x);
  if constexpr (kind == Activation::kTanh) return tanhf(x);
  return x;
}

// `saved` is the input where saves_pre_activation(kind), else the output.
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

template <Activation kind, typename T>
struct Forward {
  const T* x;
  T* y;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float values[Count::value];
    load(x + i, values);
#pragma unroll
    for (int k = 0; k < Count::value; ++k) values[k] = activate<kind>(values[k]);
    store(values, y + i);
  }
};

template <Activation kind, typename T>
struct Backward {
  const T *d_y, *saved;
  T* d_x;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float gradients[Count::value], values[Count::value];
    load(d_y + i, gradients);
    load(saved + i, values);
#pragma unroll
    for (int k = 0; k < Count::value; ++k) gradients[k] *= derivative<kind>(values[k]);
    store(gradients, d_x + i);
  }
};

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

}  // namespace

template <typename T>
void activation_forward(const ActivationForward<T>& op, Stream stream) {
  with_activation(op.activation, [&](auto kind) {
    const Forward<kind(), T> forward{op.x, op.y};
    for_each_flat<kVectorWidth<T>>(op.n, is_aligned(op.x) && is_aligned(op.y), forward, stream);
  });
}

template <typename T>
void activation_backward(const ActivationBackward<T>& op, Stream stream) {
  const bool vectors = is_aligned(op.d_y) && is_aligned(op.saved) && is_aligned(op.d_x);
  with_activation(op.activation, [&](auto kind) {
    const Backward<kind(), T> backward{op.d_y, op.saved, op.d_x};
    for_each_flat<kVectorWidth<T>>(op.n, vectors, backward, stream);
  });
}

template void activation_forward(const ActivationForward<float>&, Stream);
template void activation_forward(const ActivationForward<BFloat16>&, Stream);
template void activation_forward(const ActivationForward<Float16>&, Stream);
template void activation_backward(const ActivationBackward<float>&, Stream);
template void activation_backward(const ActivationBackward<BFloat16>&, Stream);
template void activation_backward(const ActivationBackward<Float16>&, Stream);

namespace {

void run_forward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    activation_forward(ActivationForward<T>::of(call), stream_of(call));
  });
}

void run_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    activation_backward(ActivationBackward<T>::of(call), stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kActivation, "own", run_forward},
    {OpKind::kActivationBackward, "own", run_backward},
};

}  // namespace

constinit const Implementations kCudaActivation = kRows;

}  // namespace lockstep::cuda

#include "runtime/graph/ops/gated_activation.h"

#include "runtime/cuda/activation_values.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

template <Activation kind, typename T>
struct Forward {
  graph::GatedActivationForward<T> op;
  template <typename Count>
  __device__ void operator()(int64_t row, int64_t column, Count) const {
    constexpr int N = Count::value;
    const T* const gate = op.x + row * 2 * op.columns + column;
    float values[N], up[N];
    load(gate, values);
    load(gate + op.columns, up);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = activate<kind>(values[i]) * up[i];
    store(values, op.y + row * op.columns + column);
  }
};

template <Activation kind, typename T>
struct Backward {
  graph::GatedActivationBackward<T> op;
  template <typename Count>
  __device__ void operator()(int64_t row, int64_t column, Count) const {
    constexpr int N = Count::value;
    const int64_t begin = row * 2 * op.columns + column;  // index of the gate
    float d_y[N], gate[N], up[N];
    load(op.d_y + row * op.columns + column, d_y);
    load(op.x + begin, gate);
    load(op.x + begin + op.columns, up);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = activate<kind>(gate[i]);
      const float saved = graph::saves_pre_activation(kind) ? gate[i] : value;
      gate[i] = d_y[i] * up[i] * derivative<kind>(saved);
      up[i] = d_y[i] * value;
    }
    store(gate, op.d_x + begin);
    store(up, op.d_x + begin + op.columns);
  }
};

void run_forward(const graph::OpCall& call) {
  by_type<graph::GatedActivationForward>(call, [&]<typename T>(const auto& op) {
    const bool vectors = is_vectorizable<T>(op.columns, {op.x, op.y});
    with_activation(op.activation, [&](auto kind) {
      for_each_pixel<kVectorWidth<T>>(
          op.rows, op.columns, vectors, Forward<kind(), T>{op}, stream_of(call));
    });
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::GatedActivationBackward>(call, [&]<typename T>(const auto& op) {
    const bool vectors = is_vectorizable<T>(op.columns, {op.d_y, op.x, op.d_x});
    with_activation(op.activation, [&](auto kind) {
      for_each_pixel<kVectorWidth<T>>(
          op.rows, op.columns, vectors, Backward<kind(), T>{op}, stream_of(call));
    });
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kGatedActivation, "native"),
    exec::row<run_backward>(graph::OpKind::kGatedActivationBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaGatedActivation = kRows;

}  // namespace lockstep::cuda

#include "runtime/cuda/ops/activation.h"

#include "runtime/cuda/activation_values.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

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

}  // namespace

template <typename T>
void activation_forward(const graph::ActivationForward<T>& op, Stream stream) {
  with_activation(op.activation, [&](auto kind) {
    const Forward<kind(), T> forward{op.x, op.y};
    for_each_flat<kVectorWidth<T>>(op.n, is_aligned(op.x) && is_aligned(op.y), forward, stream);
  });
}

template <typename T>
void activation_backward(const graph::ActivationBackward<T>& op, Stream stream) {
  const bool vectors = is_aligned(op.d_y) && is_aligned(op.saved) && is_aligned(op.d_x);
  with_activation(op.activation, [&](auto kind) {
    const Backward<kind(), T> backward{op.d_y, op.saved, op.d_x};
    for_each_flat<kVectorWidth<T>>(op.n, vectors, backward, stream);
  });
}

template void activation_forward(const graph::ActivationForward<float>&, Stream);
template void activation_forward(const graph::ActivationForward<BFloat16>&, Stream);
template void activation_forward(const graph::ActivationForward<Float16>&, Stream);
template void activation_backward(const graph::ActivationBackward<float>&, Stream);
template void activation_backward(const graph::ActivationBackward<BFloat16>&, Stream);
template void activation_backward(const graph::ActivationBackward<Float16>&, Stream);

namespace {

void run_forward(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::ActivationIn::kX), [&]<typename T>() {
    activation_forward(graph::ActivationForward<T>{call}, stream_of(call));
  });
}

void run_backward(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::ActivationBackwardIn::kDY), [&]<typename T>() {
    activation_backward(graph::ActivationBackward<T>{call}, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kActivation, "native"),
    exec::row<run_backward>(graph::OpKind::kActivationBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaActivation = kRows;

}  // namespace lockstep::cuda

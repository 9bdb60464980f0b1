#include "runtime/graph/ops/token_pooling.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Forward {
  graph::TokenPoolingForward<T> op;
  template <typename Count>
  __device__ void operator()(int64_t sample, int64_t column, Count) const {
    float sum[Count::value] = {};
    for (int64_t token = 0; token < op.counted.tokens; ++token) {
      if (!op.counted.is_counted(sample, token)) continue;
      float values[Count::value];
      load(op.x + (sample * op.counted.tokens + token) * op.width + column, values);
#pragma unroll
      for (int i = 0; i < Count::value; ++i) sum[i] += values[i];
    }
    const float share = op.counted.share(sample);
#pragma unroll
    for (int i = 0; i < Count::value; ++i) sum[i] *= share;
    store(sum, op.y + sample * op.width + column);
  }
};

template <typename T>
struct Backward {
  graph::TokenPoolingBackward<T> op;
  template <typename Count>
  __device__ void operator()(int64_t sample, int64_t column, Count) const {
    float d_y[Count::value];
    load(op.d_y + sample * op.width + column, d_y);
    const float share = op.counted.share(sample);
    for (int64_t token = 0; token < op.counted.tokens; ++token) {
      const float factor = op.counted.is_counted(sample, token) ? share : 0.0f;
      float values[Count::value];
#pragma unroll
      for (int i = 0; i < Count::value; ++i) values[i] = factor * d_y[i];
      store(values, op.d_x + (sample * op.counted.tokens + token) * op.width + column);
    }
  }
};

void run_forward(const graph::OpCall& call) {
  by_type<graph::TokenPoolingForward>(call, [&]<typename T>(const auto& op) {
    const bool vectors = is_vectorizable<T>(op.width, {op.x, op.y});
    for_each_pixel<kVectorWidth<T>>(op.batch, op.width, vectors, Forward<T>{op}, stream_of(call));
  });
}

void run_backward(const graph::OpCall& call) {
  by_type<graph::TokenPoolingBackward>(call, [&]<typename T>(const auto& op) {
    const bool vectors = is_vectorizable<T>(op.width, {op.d_y, op.d_x});
    for_each_pixel<kVectorWidth<T>>(op.batch, op.width, vectors, Backward<T>{op}, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kTokenPooling, "native"),
    exec::row<run_backward>(graph::OpKind::kTokenPoolingBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaTokenPooling = kRows;

}  // namespace lockstep::cuda

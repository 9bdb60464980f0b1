#include "runtime/graph/ops/image_tokens.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Forward {
  ImageTokensForward<T> op;
  template <typename Count>
  __device__ void operator()(int64_t row, int64_t column, Count) const {
    const int64_t sample = row / op.tokens, token = row - sample * op.tokens;
    float values[Count::value], position[Count::value];
    const T* const from =
        token == 0 ? op.class_token : op.x + (sample * (op.tokens - 1) + token - 1) * op.width;
    load(from + column, values);
    load(op.position + token * op.width + column, position);
#pragma unroll
    for (int i = 0; i < Count::value; ++i) values[i] += position[i];
    store(values, op.y + row * op.width + column);
  }
};

// Sums a token's gradients over all samples.
template <typename T>
struct Backward {
  ImageTokensBackward<T> op;
  template <typename Count>
  __device__ void operator()(int64_t token, int64_t column, Count) const {
    float sum[Count::value] = {};
    for (int64_t sample = 0; sample < op.batch; ++sample) {
      float values[Count::value];
      load(op.d_y + (sample * op.tokens + token) * op.width + column, values);
#pragma unroll
      for (int i = 0; i < Count::value; ++i) sum[i] += values[i];
      if (token > 0)
        store(values, op.d_x + (sample * (op.tokens - 1) + token - 1) * op.width + column);
    }
#pragma unroll
    for (int i = 0; i < Count::value; ++i) {
      op.d_position[token * op.width + column + i] = sum[i];
      if (token == 0) op.d_class_token[column + i] = sum[i];
    }
  }
};

void run_forward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    const auto op = ImageTokensForward<T>::of(call);
    const bool vectors = is_vectorizable<T>(op.width, {op.x, op.class_token, op.position, op.y});
    for_each_pixel<kVectorWidth<T>>(
        op.batch * op.tokens, op.width, vectors, Forward<T>{op}, stream_of(call));
  });
}

void run_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    const auto op = ImageTokensBackward<T>::of(call);
    const bool vectors = is_vectorizable<T>(op.width, {op.d_y, op.d_x});
    for_each_pixel<kVectorWidth<T>>(op.tokens, op.width, vectors, Backward<T>{op}, stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kImageTokens, "native", run_forward},
    {OpKind::kImageTokensBackward, "native", run_backward},
};

}  // namespace

constinit const Implementations kCudaImageTokens = kRows;

}  // namespace lockstep::cuda

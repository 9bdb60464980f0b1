#pragma once
// The arrays of attention as kernels get them, and its dropout.

#include <cmath>
#include <cstdint>

#include "runtime/graph/lane_context.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/dropout.h"

namespace lockstep::cuda {

// A matrix of tokens: element d of head h of token t of sample b is at data[((b T + t) stride) + h
// D + d].
template <typename T>
struct Tokens {
  T* data;
  int64_t stride;
};

template <typename T>
struct Packed {
  Tokens<T> q, k, v;
};
template <typename T>
Packed<T> unpack(const graph::AttentionShape& shape, T* qkv) {
  const int64_t stride = shape.packed_width();
  T* const k = qkv + shape.width();
  return {{qkv, stride}, {k, stride}, {k + shape.kv_width(), stride}};
}

__device__ __forceinline__ float softmax_scale(const graph::AttentionShape& shape) {
  return 1.0f / sqrtf(static_cast<float>(shape.head_size));
}

// Pairs whose word of the random stream is below the threshold are dropped.
struct Dropped {
  const graph::LaneContext* lane;  // in device memory
  uint32_t purpose, threshold;
  float factor;  // of the others

  static Dropped of(const graph::AttentionDropout& dropout, const graph::LaneContext* lane) {
    return {lane,
            dropout.purpose,
            graph::dropout_threshold(dropout.probability),
            graph::dropout_factor(dropout.probability)};
  }
  __device__ __forceinline__ RngStream stream() const {
    return {lane->seed, lane->step, lane->lane, purpose};
  }
};

}  // namespace lockstep::cuda

#pragma once
// Shared by the kernels of batch norm. The element type T is float, BFloat16 or Float16. Arithmetic
// is in float, the combination of blocks of rows in double. Only kernel files include this.

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_tiles.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep::cuda {

inline constexpr int64_t kWrittenRows = 16;  // min rows per thread in kernels that sum nothing

// Sums over rows have three steps in an order that depends on the shape alone: a thread adds up
// rows of its block, the block adds its threads, and a last small kernel adds the blocks in kGroups
// interleaved groups. Nothing is atomic.
inline constexpr int kGroups = 16;

// Loads statistics as floats. Running statistics stored in FP16 may have overflowed to infinity;
// they are read as the largest number of the type, so that y remains a function of x.
template <typename S, int N>
__device__ __forceinline__ void load_statistics(const S* from, float (&to)[N]) {
  load(from, to);
  if constexpr (std::is_same_v<S, Float16>) {
    constexpr float kLargest = 65504;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (to[i] > kLargest) to[i] = kLargest;  // propagates NaN
      if (to[i] < -kLargest) to[i] = -kLargest;
    }
  }
}

// Values of N channels that are derived from the statistics.
template <int N>
struct Channels {
  float mean[N], rstd[N], scale[N], beta[N];  // scale: gamma rstd

  // Op: an op with gamma, beta and epsilon. S: T or float.
  template <typename Op, typename S>
  __device__ __forceinline__
  Channels(const Op& op, const S* means, const S* variances, int64_t channel) {
    load_statistics(means + channel, mean);
    load_statistics(variances + channel, rstd);
    load(op.gamma + channel, scale);
    load(op.beta + channel, beta);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      rstd[i] = rsqrtf(rstd[i] + op.epsilon);
      scale[i] *= rstd[i];
    }
  }
  // Forward and backward must have the same bits, so that they agree on where ReLU passes.
  __device__ __forceinline__ float normalise(int i, float x) const {
    return fmaf(x - mean[i], scale[i], beta[i]);
  }
};

// Whether (channels) arrays of another type can be read in vectors of as many elements.
inline bool all_aligned(std::initializer_list<const void*> arrays) {
  return std::all_of(arrays.begin(), arrays.end(), [](const void* array) {
    return reinterpret_cast<uintptr_t>(array) % 16 == 0;
  });
}

// Defined in batch_norm_backward.cu, for the table of implementations.
void run_batch_norm_backward(const graph::OpCall& call);
void run_batch_norm_sums(const graph::OpCall& call);
void run_batch_norm_input_gradient(const graph::OpCall& call);

}  // namespace lockstep::cuda

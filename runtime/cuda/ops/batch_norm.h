#pragma once
// What the kernels of batch norm share. T, what is stored, is float, BFloat16 or Float16; all
// arithmetic is in float, the combination of blocks of rows in double. Only kernel files include
// this.

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "runtime/cuda/plan/norms.h"
#include "runtime/cuda/row_tiles.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep::cuda {

inline constexpr int64_t kWrittenRows = 16;  // of a thread, at least, where nothing is summed

// Sums over rows go in three steps whose order the shape fixes: a thread adds up rows of its block,
// the block its threads, and a last small kernel the blocks, kGroups of them side by side. Between
// them nothing is atomic.
inline constexpr int kGroups = 16;

// Statistics in float. Those stored in FP16 are running ones, rounded to infinity where a variance
// is beyond the type's range: they are read as its largest number, which keeps y a function of x.
template <typename S, int N>
__device__ __forceinline__ void load_statistics(const S* from, float (&to)[N]) {
  load(from, to);
  if constexpr (std::is_same_v<S, Float16>) {
    constexpr float kLargest = 65504;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (to[i] > kLargest) to[i] = kLargest;  // NaN passes
      if (to[i] < -kLargest) to[i] = -kLargest;
    }
  }
}

// What is known of N channels once the statistics are.
template <int N>
struct Channels {
  float mean[N], rstd[N], scale[N], beta[N];  // scale: gamma rstd

  // Op: with gamma, beta and epsilon. S: T or float.
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
  // Forward and backward must agree to the bit: where it is above zero ReLU passes.
  __device__ __forceinline__ float normalise(int i, float x) const {
    return fmaf(x - mean[i], scale[i], beta[i]);
  }
};

// Whether (channels) arrays of another type can be read by vectors of as many elements.
inline bool all_aligned(std::initializer_list<const void*> arrays) {
  return std::all_of(arrays.begin(), arrays.end(), [](const void* array) {
    return reinterpret_cast<uintptr_t>(array) % 16 == 0;
  });
}

// What the table of implementations has of batch_norm_backward.cu.
void run_batch_norm_backward(const OpCall& call);
void run_batch_norm_sums(const OpCall& call);
void run_batch_norm_input_gradient(const OpCall& call);

}  // namespace lockstep::cuda

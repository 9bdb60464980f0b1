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

// Elements whose bits are in one byte of a mask.
inline constexpr int kMaskBits = 8;

// The largest number that T rounds to zero.
template <typename T>
inline constexpr float kRoundsToZero = 0;
template <>
inline constexpr float kRoundsToZero<BFloat16> = 0x1p-134f;
template <>
inline constexpr float kRoundsToZero<Float16> = 0x1p-25f;

// Bit i is set if element i, stored as T, is above 0.
template <typename T>
__device__ __forceinline__ uint8_t bits_above_zero(const float (&values)[kMaskBits]) {
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kMaskBits; ++i) bits |= values[i] > kRoundsToZero<T> ? 1u << i : 0u;
  return static_cast<uint8_t>(bits);
}

// Sums over rows have three steps, in an order that depends on the shape and on the GPU's number
// of multiprocessors: a thread adds up rows of its block, the block adds its threads, and a last
// small kernel adds the blocks: kGroups interleaved groups of them, then the groups as a tree.
// Nothing is atomic. A block of the last kernel has (kFewChannels, kGroups) threads, so that few
// channels are the work of several blocks.
inline constexpr int kGroups = 64;
inline constexpr int kFewChannels = 8;  // as many floats as memory is read in: 32 bytes

// Calls f(block, first, second) with both sums of a channel, for each block of the thread's group.
// Several are loaded at once.
template <typename F>
__device__ __forceinline__ void for_blocks(
    const float* partials, int64_t blocks, int64_t channels, int64_t channel, F f) {
  constexpr int kAtOnce = 4;
  for (int64_t next = threadIdx.y; next < blocks; next += kAtOnce * kGroups) {
    float first[kAtOnce], second[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t block = next + k * kGroups;
      const float* const at = partials + (block < blocks ? block : next) * channels + channel;
      first[k] = at[0];
      second[k] = at[blocks * channels];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t block = next + k * kGroups;
      if (block < blocks) f(block, first[k], second[k]);
    }
  }
}

// Adds up the groups' values as a tree. The threads of group 0 get the sums. All threads of the
// block must call it.
template <typename V, int K>
__device__ __forceinline__ void add_up_groups(V (&values)[K]) {
  __shared__ V parts[kGroups][K][kFewChannels];
  for (int i = 0; i < K; ++i) parts[threadIdx.y][i][threadIdx.x] = values[i];
  for (int half = kGroups / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= static_cast<unsigned>(half)) continue;
    for (int i = 0; i < K; ++i)
      parts[threadIdx.y][i][threadIdx.x] += parts[threadIdx.y + half][i][threadIdx.x];
  }
  for (int i = 0; i < K; ++i) values[i] = parts[threadIdx.y][i][threadIdx.x];
}

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

#pragma once
// Shared by kernels: vector loads, and sums over a warp or a block in a fixed order. Only kernel
// files include this.

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "runtime/base/half.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Elements of T in the 16 bytes that a thread loads at once.
template <typename T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

// N elements, read and written at once; the address must be a multiple of their size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

template <typename T, int N>
__device__ __forceinline__ void widen(const Vector<T, N>& from, float* to) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(from.at[i]);
}

// The same vector, but unknown to the compiler. Kernels that keep vectors in registers convert
// unknown() ones, or else the compiler would keep the floats, which need twice the registers.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> unknown(const Vector<T, N>& vector) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(vector) == 16) {
    auto words = std::bit_cast<uint4>(vector);
    asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
    return std::bit_cast<Vector<T, N>>(words);
  }
#endif
  return vector;
}

// Loads N elements from memory, at most 16 bytes at a time. The address must be a multiple of the
// bytes read at a time.
template <int N, typename T>
__device__ __forceinline__ void load(const T* from, float (&to)[N]) {
  constexpr int kAtOnce = N < kVectorWidth<T> ? N : kVectorWidth<T>;
  static_assert(N % kAtOnce == 0);
#pragma unroll
  for (int first = 0; first < N; first += kAtOnce) {
    const auto vector = *reinterpret_cast<const Vector<T, kAtOnce>*>(from + first);
    widen(vector, to + first);
  }
}

// Two elements rounded to T, the first in the lower half of the word.
template <typename T>
__device__ __forceinline__ uint32_t round_pair(float first, float second) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return round_to<T>(first).bits | static_cast<uint32_t>(round_to<T>(second).bits) << 16;
#endif
}

// Writes a vector at once. Left to itself, the compiler splits such stores in some kernels.
template <typename T, int N>
__device__ __forceinline__ void store_vector(const Vector<T, N>& vector, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(vector) == 16) {
    return __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(vector));
  } else if constexpr (sizeof(vector) == 8) {
    return __stwb(reinterpret_cast<uint2*>(to), std::bit_cast<uint2>(vector));
  }
#endif
  *reinterpret_cast<Vector<T, N>*>(to) = vector;
}

// Stores N elements, rounded to T, at most 16 bytes at a time, in the same way.
template <int N, typename T>
__device__ __forceinline__ void store(const float (&from)[N], T* to) {
  constexpr int kAtOnce = N < kVectorWidth<T> ? N : kVectorWidth<T>;
  static_assert(N % kAtOnce == 0);
#pragma unroll
  for (int first = 0; first < N; first += kAtOnce) {
    if constexpr (sizeof(T) == 2 && kAtOnce % 2 == 0) {
      Vector<uint32_t, kAtOnce / 2> pairs;
#pragma unroll
      for (int i = 0; i < kAtOnce / 2; ++i)
        pairs.at[i] = round_pair<T>(from[first + 2 * i], from[first + 2 * i + 1]);
      store_vector(std::bit_cast<Vector<T, kAtOnce>>(pairs), to + first);
    } else {
      Vector<T, kAtOnce> vector;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) vector.at[i] = round_to<T>(from[first + i]);
      store_vector(vector, to + first);
    }
  }
}

// 2^x, with a relative error of at most 2^-22 (PTX's ex2.approx.ftz); results below 2^-126 are 0.
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return std::exp2(x);
#endif
}

// Whether rows of `columns` elements can be read in vectors: every row of every array begins at a
// multiple of 16 bytes. Absent arrays may be null.
template <typename T>
bool is_vectorizable(int64_t columns, std::initializer_list<const T*> arrays) {
  if (columns % kVectorWidth<T> != 0) return false;
  for (const T* array : arrays) {
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0) return false;
  }
  return true;
}

// A grid of (across, down) blocks, as most kernels number them. A grid's second dimension is
// limited to 65,535, so a taller grid continues in the third. Because of rounding up, it may have
// blocks past `down`, which the kernel must ignore.
inline dim3 tall_grid(unsigned across, int64_t down) {
  LOCKSTEP_REQUIRE(down >= 1 && down <= kMaxBlocksDown * kMaxBlocksDown);
  const unsigned deep = blocks_for(down, max_blocks_down());
  return {across, blocks_for(down, deep), deep};
}
// The block's index in the dimension `down` of a tall grid.
__device__ __forceinline__ int64_t block_down() { return blockIdx.z * gridDim.y + blockIdx.y; }

// Calls f with the number of elements of T that a thread reads at once: 16 bytes if `vectors`,
// otherwise one element.
template <typename T, typename F>
void with_vectors(bool vectors, F f) {
  if (vectors) {
    f(std::integral_constant<int, kVectorWidth<T>>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

// Operations that are reduced over a warp or a block, in a fixed order. Each has an identity.
struct Sum {
  template <typename T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <typename T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct Min {
  template <typename T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return a < b ? a : b;
  }
};

// Reduces over the warp's 32 lanes as a butterfly; every lane gets the same bits.
template <typename Operation, typename T>
__device__ __forceinline__ T warp_reduce(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// Reduces over a block of Threads threads (a multiple of 32, one dimension): within warps, then
// over the warps in order. Every thread gets the same bits. All threads of the block must call it.
template <typename Operation, int Threads, typename T>
__device__ __forceinline__ T block_reduce(T value) {
  constexpr int kWarps = Threads / kWarp;
  static_assert(Threads % kWarp == 0 && kWarps <= kWarp);
  value = warp_reduce<Operation>(value);
  if constexpr (kWarps == 1) return value;
  __shared__ T parts[kWarps];
  __syncthreads();  // the parts of the previous call may still be read
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = parts[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) value = Operation::apply(value, parts[warp]);
  return value;
}

}  // namespace lockstep::cuda

#pragma once
// How a block of threads holds a row of logits, and the softmax of what was seen of it so far. Only
// kernel files include this.

#include <cstdint>
#include <limits>

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {

// How the threads of a block divide a row: single elements up to the first multiple of 16 bytes,
// then vectors, then single elements again, because rows of an odd length may begin anywhere.
template <typename T, int Threads>
struct RowDivision {
  static constexpr int N = kVectorWidth<T>;

  __device__ __forceinline__ RowDivision(const T* row, int32_t columns) : columns(columns) {
    const auto misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    head = misaligned == 0 ? 0 : N - misaligned;
    if (head > columns) head = columns;
    tail = head + (columns - head) / N * N;
  }
  // The thread's vector k, which is one if it begins before the tail.
  __device__ __forceinline__ int32_t column(int k) const {
    return head + (k * Threads + static_cast<int32_t>(threadIdx.x)) * N;
  }
  // Calls f(column) for the single elements of this thread in the head, and in the tail.
  template <typename F>
  __device__ __forceinline__ void in_head(F f) const {
    if (static_cast<int32_t>(threadIdx.x) < head) f(static_cast<int32_t>(threadIdx.x));
  }
  template <typename F>
  __device__ __forceinline__ void in_tail(F f) const {
    const int32_t column = tail + static_cast<int32_t>(threadIdx.x);
    if (column < columns) f(column);
  }
  // Calls f(column, values) for all elements of this thread, for f to set and store `values`.
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
    const auto single = [&](int32_t column) {
      float value[1] = {};
      f(column, value);
    };
    in_head(single);
    for (int32_t column = this->column(0); column < tail; column += Threads * N) {
      float values[N] = {};
      f(column, values);
    }
    in_tail(single);
  }

  int32_t columns, head, tail;
};

// The elements of a row that one thread handles. It keeps the first `Kept` vectors in registers;
// AllKept: there are no more.
template <typename T, int Threads, int Kept, bool AllKept>
class RowOfThread {
 public:
  __device__ __forceinline__ RowOfThread(const T* row, int32_t columns)
      : row_(row), division_(row, columns) {
#pragma unroll
    for (int k = 0; k < Kept; ++k) {
      const int32_t column = division_.column(k);
      if (column < division_.tail) kept_[k] = *reinterpret_cast<const Vector<T, N>*>(row + column);
    }
  }

  // Calls f(column, values) for all of them, in ascending order. f may overwrite them in memory.
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
    const auto single = [&](int32_t column) {
      float value[1];
      load(row_ + column, value);
      f(column, value);
    };
    division_.in_head(single);
#pragma unroll
    for (int k = 0; k < Kept; ++k) {
      const int32_t column = division_.column(k);
      if (column >= division_.tail) continue;
      float values[N];
      widen(unknown(kept_[k]), values);
      f(column, values);
    }
    if constexpr (!AllKept) {
      for (int32_t column = division_.column(Kept); column < division_.tail;
           column += Threads * N) {
        float values[N];
        load(row_ + column, values);
        f(column, values);
      }
    }
    division_.in_tail(single);
  }

  // Stores the values of `each` at the same columns of another row.
  template <int Count>
  __device__ __forceinline__ void store(const float (&values)[Count],
                                        T* row,
                                        int32_t column) const {
    cuda::store(values, row + column);
  }

 private:
  static constexpr int N = kVectorWidth<T>;
  const T* row_;
  RowDivision<T, Threads> division_;
  Vector<T, N> kept_[Kept];
};

template <int Threads, typename T>
__device__ __forceinline__ void fill_zeros(T* row, int32_t columns) {
  RowDivision<T, Threads>(row, columns).each([&](int32_t column, auto& zeros) {
    store(zeros, row + column);
  });
}

// Powers of 2 instead of e: exp(x) = 2^(x log2(e)), which the multiply-add that subtracts the
// largest exponent computes without rounding the product.
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// Largest element and sum of exponentials of the elements seen so far. A vector's largest element
// comes first, so that the sum is scaled once a vector, and without a branch.
struct RunningSoftmax {
  float max = -std::numeric_limits<float>::infinity();
  float exponent = exponent_of(max);  // of max
  float sum = 0;                      // of 2^(x log2(e) - exponent)
  float plain_sum = 0;                // of x, if wanted
  int32_t first = 0;                  // column of the vector with the first of the largest elements

  // Finite, so that -infinity minus it is -infinity and not NaN.
  static __device__ __forceinline__ float exponent_of(float max) {
    return fmaxf(max * kLog2E, std::numeric_limits<float>::lowest());
  }

  // A thread's columns ascend, so the first of equal ones stays. NaN is never the largest, but
  // makes the sum NaN.
  template <int N>
  __device__ __forceinline__ void add(int32_t column, const float (&x)[N], bool wants_plain_sum) {
    float largest = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) largest = fmaxf(largest, x[i]);
    if (largest > max) first = column;
    max = fmaxf(max, largest);
    const float before = exponent;
    exponent = exponent_of(max);
    float terms[N];
#pragma unroll
    for (int i = 0; i < N; ++i) terms[i] = exp2_approx(fmaf(x[i], kLog2E, -exponent));
#pragma unroll
    for (int distance = N / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int i = 0; i < distance; ++i) terms[i] += terms[i + distance];
    }
    sum = fmaf(sum, exp2_approx(before - exponent), terms[0]);
    if (!wants_plain_sum) return;
#pragma unroll
    for (int i = 0; i < N; ++i) plain_sum += x[i];
  }

  // Those of all lanes of the warp.
  __device__ __forceinline__ void merge_warp() {
    const float own = max, before = exponent;
    max = warp_reduce<Max>(own);
    exponent = exponent_of(max);
    sum = warp_reduce<Sum>(sum * exp2_approx(before - exponent));
    plain_sum = warp_reduce<Sum>(plain_sum);
    first = warp_reduce<Min>(own == max ? first : std::numeric_limits<int32_t>::max());
  }

  // Those of all threads of the block; a warp has as many lanes as a block warps.
  template <int Threads>
  __device__ __forceinline__ void merge_block() {
    merge_warp();
    if constexpr (Threads > kWarp) {
      static_assert(Threads == kWarp * kWarp);
      __shared__ float maxima[kWarp], sums[kWarp], plain_sums[kWarp];
      __shared__ int32_t firsts[kWarp];
      const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
      if (lane == 0) {
        maxima[warp] = max;
        sums[warp] = sum;
        plain_sums[warp] = plain_sum;
        firsts[warp] = first;
      }
      __syncthreads();
      max = maxima[lane];
      exponent = exponent_of(max);
      sum = sums[lane];
      plain_sum = plain_sums[lane];
      first = firsts[lane];
      merge_warp();
    }
  }
};

}  // namespace lockstep::cuda

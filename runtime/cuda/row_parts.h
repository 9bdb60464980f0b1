#pragma once
// How kernels that normalise rows divide them: a row is held in the registers of a warp or of a
// block. Only kernel files include this.

#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kWideRowThreads = 256;  // of a block, for long rows

// Max vectors of N elements that a thread keeps in registers.
template <int N>
inline constexpr int kMaxHeld = N == 8 ? 4 : 8;

// The elements of a row that one of Threads threads handles: vectors `thread`, `thread` + Threads,
// ... of N elements. Its first Held vectors are kept in registers.
template <int N, int Held, int Threads>
struct RowPart {
  float values[Held][N] = {};

  // Calls f(column, values) for each vector.
  template <typename F>
  __device__ __forceinline__ void each(int64_t columns, int thread, F f) {
#pragma unroll
    for (int k = 0; k < Held; ++k) {
      const int64_t column = static_cast<int64_t>(k * Threads + thread) * N;
      if (column < columns) f(column, values[k]);
    }
  }
};

// Reduces over RowThreads threads of a row (a warp, or a block), with the same bits in all of them.
template <typename Operation, int RowThreads>
__device__ __forceinline__ float row_reduce(float value) {
  if constexpr (RowThreads == kWarp) return warp_reduce<Operation>(value);
  return block_reduce<Operation, RowThreads>(value);
}

// Sums of two numbers over the RowThreads threads of each row, in a block of Threads. Calls take
// turns with two arrays, so each needs one barrier: behind it, all threads have read the results of
// the previous call.
template <int RowThreads, int Threads>
class RowSums {
 public:
  // Every thread gets the sums of its row. All threads of the block must call it.
  __device__ __forceinline__ void add_up(float& a, float& b) {
    a = warp_reduce<Sum>(a);
    b = warp_reduce<Sum>(b);
    if constexpr (RowThreads > kWarp) {
      __shared__ float parts[2][2][Threads / kWarp];
      const int warp = threadIdx.x / kWarp, first = threadIdx.x / RowThreads * (RowThreads / kWarp);
      if (threadIdx.x % kWarp == 0) {
        parts[turn_][0][warp] = a;
        parts[turn_][1][warp] = b;
      }
      __syncthreads();
      a = parts[turn_][0][first];
      b = parts[turn_][1][first];
#pragma unroll
      for (int other = 1; other < RowThreads / kWarp; ++other) {
        a += parts[turn_][0][first + other];
        b += parts[turn_][1][first + other];
      }
      turn_ = 1 - turn_;
    }
  }

 private:
  int turn_ = 0;
};

// A block has as many rows as fit into kRowThreads threads, or one.
template <int RowThreads>
inline constexpr int kBlockThreads = RowThreads < kRowThreads ? kRowThreads : RowThreads;

// Blocks that must fit on a multiprocessor at once. To fit more, the compiler spills registers.
template <int RowThreads>
inline constexpr int kRowBlocks = 1024 / kBlockThreads<RowThreads>;

// Calls f with the smallest of Held, 2 Held, 4 Held, ... that is at least `vectors`.
template <int N, int Held, typename F>
void with_held(int64_t vectors, F f) {
  if constexpr (Held < kMaxHeld<N>) {
    if (vectors > Held) return with_held<N, 2 * Held>(vectors, f);
  }
  LOCKSTEP_REQUIRE(vectors <= Held);
  f(std::integral_constant<int, Held>());
}

// Calls f with the smallest of the given numbers of threads that can hold a row, and with the
// vectors that each thread then holds: 1, 2, 4 or 8. Rows that fit into `Fewer` threads never get
// here, so a thread has a minimum number of vectors, and fewer kernels are compiled.
template <int N, int Fewer, int Few, int... More, typename F>
void with_threads(int64_t columns, F f) {
  if constexpr (sizeof...(More) > 0) {
    if (columns > kMaxHeld<N> * Few * N) return with_threads<N, Few, More...>(columns, f);
  }
  constexpr int kLeast = Fewer == 0 ? 1 : 2 * kMaxHeld<N> * Fewer / Few;
  with_held<N, kLeast>(blocks_for(columns, N * Few),
                       [&](auto held) { f(std::integral_constant<int, Few>(), held); });
}

// Launches the kernel that `kernel`.operator()<N, Held, Threads>() returns, with the op as its only
// argument: a warp for each of the op's rows or, for long rows, a block. vectors: whether all
// arrays can be read in vectors.
template <typename T, typename Op, typename F>
void start_by_rows(const Op& op, bool vectors, Stream stream, F kernel) {
  with_vectors<T>(vectors, [&](auto n) {
    constexpr int N = decltype(n)::value;
    with_threads<N, 0, kWarp, kRowThreads, kWideRowThreads>(
        op.columns, [&](auto threads, auto held) {
          constexpr int kThreads = decltype(threads)::value, kHeld = decltype(held)::value;
          constexpr unsigned kBlock = kBlockThreads<kThreads>;
          launch({blocks_for(op.rows, kBlock / kThreads), kBlock, stream},
                 kernel.template operator()<N, kHeld, kThreads>(),
                 op);
        });
  });
}

}  // namespace lockstep::cuda

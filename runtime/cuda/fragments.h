#pragma once
// Products on tensor cores. A warp multiplies a left matrix of 16 rows with a right matrix of 8
// columns. Its 32 lanes share out the matrices in registers as the instruction mma.sync wants it
// (PTX ISA, "Matrix Fragments for mma"): a lane has a fragment of each. The depth, over which a
// product sums, is 32 bytes: 16 elements of 16 bits, or 8 floats, of which tensor cores use 10 bits
// of mantissa (TF32). Counted in words of 4 bytes both are the same, with group = lane / 4 and
// place = lane % 4:
//
//    left, rows of 8 words           right, columns of 8 words    sums, rows of 8 floats
//                 place   place + 4                 column group               2 place  2 place + 1
//    row group     [0]       [2]     word place          [0]      row group     [0]      [1]
//    row group + 8 [1]       [3]     word place + 4      [1]      row group + 8 [2]      [3]
//
// On the host tests/fibers/tensor_cores.cc plays the instructions. All lanes of the warp must call
// the functions that load or multiply.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {

// Elements over which one product sums.
template <typename T>
inline constexpr int kDepth = 32 / static_cast<int>(sizeof(T));

struct LeftFragment {
  uint32_t words[4];
};
struct RightFragment {
  uint32_t words[2];
};
struct SumFragment {
  float at[4];
};

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }

// Where element i of a lane's sums is in the matrix of 16 x 8.
__device__ __forceinline__ int sum_row(int i) { return lane_of_warp() / 4 + i / 2 * 8; }
__device__ __forceinline__ int sum_column(int i) { return lane_of_warp() % 4 * 2 + i % 2; }

// ---- The instructions ----

// sums += left right, with the elements of T (float: TF32) in the words.
template <typename T>
__device__ __forceinline__ void multiply_add(SumFragment& sums,
                                             const LeftFragment& left,
                                             const RightFragment& right) {
#if defined(__CUDA_ARCH__)
  const uint32_t(&a)[4] = left.words;
  const uint32_t(&b)[2] = right.words;
  float(&c)[4] = sums.at;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (std::is_same_v<T, Float16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#elif !defined(__CUDACC__)
  constexpr fibers::Factors kFactors = std::is_same_v<T, BFloat16>  ? fibers::Factors::kBFloat16
                                       : std::is_same_v<T, Float16> ? fibers::Factors::kFloat16
                                                                    : fibers::Factors::kTf32;
  fibers::multiply_add(kFactors, sums.at, left.words, right.words);
#endif
}

// Four matrices of 8 rows of 16 bytes in shared memory: lane 8 m + r gives the address of row r of
// matrix m. As words[m] a lane gets word `place` of row `group` of matrix m, or, transposed, the
// 16-bit elements in column `group` of rows 2 place and 2 place + 1.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(const void* row, uint32_t (&words)[4]) {
#if defined(__CUDA_ARCH__)
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  fibers::load_matrices(row, kTransposed, words);
#endif
}

// Copies Bytes (4 or 16) to shared memory, or sets them to 0. The copy is there after
// wait_for_copies(), for other threads after a barrier behind it.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool exists) {
  static_assert(kBytes == 4 || kBytes == 16);
#if defined(__CUDA_ARCH__)
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = exists ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
        : "memory");
  } else {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes)
        : "memory");
  }
#else
  using Bytes = Vector<uint32_t, kBytes / 4>;
  *static_cast<Bytes*>(to) = exists ? *static_cast<const Bytes*>(from) : Bytes{};
#endif
}

// Ends a batch of this thread's copies.
__device__ __forceinline__ void end_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of this thread's batches but the last `kLeft`.
template <int kLeft>
__device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

// The word that tensor cores take for a float: rounded to TF32, ties away from 0.
__device__ __forceinline__ uint32_t tf32_word(float x) {
#ifdef __CUDA_ARCH__
  uint32_t word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
  return word;
#else
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return (bits & 0x7fffffffu) >= 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#endif
}

// ---- Fragments of matrices in shared memory, whose rows are `stride` elements apart ----

template <typename T, int kCount>
__device__ __forceinline__ void round_words(uint32_t (&words)[kCount]) {
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = tf32_word(std::bit_cast<float>(words[i]));
  }
}

// The 16 rows and kDepth columns that begin at `from`.
template <typename T>
__device__ __forceinline__ LeftFragment load_left(const T* from, int stride) {
  const int lane = lane_of_warp();
  LeftFragment left;
  load_matrices<false>(from + lane % 16 * stride + lane / 16 * (kDepth<T> / 2), left.words);
  round_words<T>(left.words);
  return left;
}

// Two right matrices whose columns are the 16 rows that begin at `from`.
template <typename T>
__device__ __forceinline__ void load_rows_as_right(const T* from,
                                                   int stride,
                                                   RightFragment (&right)[2]) {
  const int lane = lane_of_warp();
  uint32_t words[4];
  load_matrices<false>(from + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * (kDepth<T> / 2),
                       words);
  round_words<T>(words);
  right[0] = {{words[0], words[1]}};
  right[1] = {{words[2], words[3]}};
}

// Two right matrices of kDepth rows and 8 columns, side by side, the first of which begins at
// `from`. Its rows belong to the columns of left_of().
template <typename T>
__device__ __forceinline__ void load_right(const T* from, int stride, RightFragment (&right)[2]) {
  const int lane = lane_of_warp();
  uint32_t words[4];
  if constexpr (sizeof(T) == 2) {
    load_matrices<true>(from + lane % 16 * stride + lane / 16 * 8, words);
  } else {
    const T* const at = from + lane % 4 * 2 * stride + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = std::bit_cast<uint32_t>(at[i % 2 * stride + i / 2 * 8]);
    round_words<T>(words);
  }
  right[0] = {{words[0], words[1]}};
  right[1] = {{words[2], words[3]}};
}

// Sums of kDepth columns as the left matrix of the next product, rounded to T. No value changes its
// lane: for floats, words `place` and `place + 4` are columns 2 place and 2 place + 1, which
// load_right() follows.
template <typename T>
__device__ __forceinline__ LeftFragment left_of(const SumFragment* sums) {
  if constexpr (sizeof(T) == 2) {
    return {{round_pair<T>(sums[0].at[0], sums[0].at[1]),
             round_pair<T>(sums[0].at[2], sums[0].at[3]),
             round_pair<T>(sums[1].at[0], sums[1].at[1]),
             round_pair<T>(sums[1].at[2], sums[1].at[3])}};
  } else {
    return {{tf32_word(sums[0].at[0]),
             tf32_word(sums[0].at[2]),
             tf32_word(sums[0].at[1]),
             tf32_word(sums[0].at[3])}};
  }
}

}  // namespace lockstep::cuda

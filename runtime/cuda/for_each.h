#pragma once
// Kernels that process each element of flat arrays separately. Only kernel files include this.

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {

inline constexpr int kFlatThreads = 256;

// Calls f(first element, N as a compile-time constant) for groups of N of n elements, and
// f(element, 1) for each of the last n % N.
template <int N, typename F>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(int64_t n, F f) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x) * N;
  if (i + N <= n) {
    f(i, std::integral_constant<int, N>());
  } else {
    for (int64_t k = i; k < n; ++k) f(k, std::integral_constant<int, 1>());
  }
}

// Launches f, a device function object, with N elements per thread if `vectors`, otherwise one.
// `vectors`: all its arrays are aligned to N elements.
template <int N, typename F>
void for_each_flat(int64_t n, bool vectors, F f, Stream stream) {
  if (n == 0) return;
  if (vectors) {
    launch({blocks_for(n, kFlatThreads * N), kFlatThreads, stream}, flat_kernel<N, F>, n, f);
  } else {
    launch({blocks_for(n, kFlatThreads), kFlatThreads, stream}, flat_kernel<1, F>, n, f);
  }
}

// Whether an array is aligned for vectors of 16 bytes.
inline bool is_aligned(const void* array) { return reinterpret_cast<uintptr_t>(array) % 16 == 0; }

}  // namespace lockstep::cuda

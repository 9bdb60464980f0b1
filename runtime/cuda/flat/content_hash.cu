#include "runtime/cuda/flat/content_hash.h"

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// The sums are of integers, so their order does not matter.
__device__ __forceinline__ void store_block_sum(const ContentHash& mine, ContentHash* out) {
  const uint64_t sum = block_reduce<Sum, kThreads>(mine.sum);
  const uint64_t not_finite = block_reduce<Sum, kThreads>(mine.not_finite);
  if (threadIdx.x > 0) return;
  out->sum = sum;
  out->not_finite = not_finite;
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    content_hash_kernel(const T* x, int64_t n, uint64_t first_index, ContentHash* partials) {
  ContentHash mine;
  const auto add = [&](int64_t i, float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    mine.sum += mix_element(first_index + static_cast<uint64_t>(i), bits);
    mine.not_finite += is_not_finite(bits) ? 1 : 0;
  };
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * N;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  for (; i + N <= n; i += stride) {
    float values[N];
    load(x + i, values);
#pragma unroll
    for (int k = 0; k < N; ++k) add(i + k, values[k]);
  }
  for (; i < n; ++i) add(i, to_float(x[i]));  // the last elements, fewer than N
  store_block_sum(mine, partials + blockIdx.x);
}

__global__ void __launch_bounds__(kThreads)
    sum_hashes_kernel(const ContentHash* partials, int count, ContentHash* out) {
  ContentHash mine;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    mine.sum += partials[i].sum;
    mine.not_finite += partials[i].not_finite;
  }
  store_block_sum(mine, out);
}

}  // namespace

template <typename T>
void content_hash(const T* x,
                  int64_t n,
                  uint64_t first_index,
                  ContentHash* workspace,
                  ContentHash* out,
                  Stream stream) {
  constexpr int kWide = kVectorWidth<T>;
  const bool wide = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const unsigned needed = blocks_for(n, int64_t{kThreads} * (wide ? kWide : 1) * 4);
  const unsigned blocks = needed < kHashBlocks ? needed : kHashBlocks;
  launch({blocks, kThreads, stream},
         wide ? content_hash_kernel<T, kWide> : content_hash_kernel<T, 1>,
         x,
         n,
         first_index,
         workspace);
  launch({1, kThreads, stream}, sum_hashes_kernel, workspace, static_cast<int>(blocks), out);
}

template void content_hash(const float*, int64_t, uint64_t, ContentHash*, ContentHash*, Stream);
template void content_hash(const BFloat16*, int64_t, uint64_t, ContentHash*, ContentHash*, Stream);
template void content_hash(const Float16*, int64_t, uint64_t, ContentHash*, ContentHash*, Stream);

}  // namespace lockstep::cuda

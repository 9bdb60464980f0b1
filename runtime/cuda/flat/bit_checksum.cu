#include "runtime/cuda/flat/bit_checksum.h"

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlockElements = 16 * kThreads;  // min elements per block

template <typename T>
__global__ void __launch_bounds__(kThreads)
    bit_checksum_kernel(const T* x, int64_t n, uint32_t* partials) {
  uint32_t mine = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride)
    mine += x[i];
  mine = block_reduce<Sum, kThreads>(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = mine;
}

__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(const uint32_t* partials, int count, uint32_t* sum) {
  uint32_t mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) mine += partials[i];
  mine = block_reduce<Sum, kThreads>(mine);
  if (threadIdx.x == 0) *sum += mine;
}

}  // namespace

template <typename T>
void add_bits(const T* x, int64_t n, uint32_t* workspace, uint32_t* sum, Stream stream) {
  if (n == 0) return;
  const unsigned needed = blocks_for(n, kBlockElements);
  const unsigned blocks = needed < kBitChecksumBlocks ? needed : kBitChecksumBlocks;
  launch({blocks, kThreads, stream}, bit_checksum_kernel<T>, x, n, workspace);
  launch({1, kThreads, stream}, add_partials_kernel, workspace, static_cast<int>(blocks), sum);
}

template void add_bits(const uint32_t*, int64_t, uint32_t*, uint32_t*, Stream);
template void add_bits(const uint16_t*, int64_t, uint32_t*, uint32_t*, Stream);

}  // namespace lockstep::cuda

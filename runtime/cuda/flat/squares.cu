#include "runtime/cuda/flat/squares.h"

#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

constexpr int kSquaresThreads = 256;
constexpr int kSquaresGroup = 4;  // threads that sum a chunk
constexpr int kSquaresGroups = kSquaresThreads / kSquaresGroup;
constexpr int kMergeThreads = ExactSum::kWords * kWarp;

// Returns, in each thread of a group, the sum of squares of the chunk that begins at x and has
// `count` elements. Thread j sums elements 16 i + 4 j + k. Then the threads exchange halves, so
// that each adds what it has kept to what its neighbour sent.
template <bool Vectors>
__device__ __forceinline__ double chunk_squares(const float* x, int64_t count) {
  const int j = static_cast<int>(threadIdx.x) % kSquaresGroup;
  float values[4][4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int first = 16 * i + 4 * j;
    if (Vectors && first + 4 <= count) {
      load(x + first, values[i]);
    } else {
      for (int k = 0; k < 4 && first + k < count; ++k) values[i][k] = x[first + k];
    }
  }
  double sums[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    double squares[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) squares[i] = static_cast<double>(values[i][k]) * values[i][k];
    sums[k] = (squares[0] + squares[2]) + (squares[1] + squares[3]);  // distance 32, then 16
  }
  const bool upper = (j & 2) != 0, odd = (j & 1) != 0;
  double pair[2];  // distance 8: the sums of k = 2 * upper and k + 1
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const double other = __shfl_xor_sync(kAllLanes, upper ? sums[k] : sums[k + 2], 2);
    pair[k] = (upper ? sums[k + 2] : sums[k]) + other;
  }
  const double other = __shfl_xor_sync(kAllLanes, odd ? pair[0] : pair[1], 1);
  double sum = (odd ? pair[1] : pair[0]) + other;  // distance 4: the sum of k = j
  sum += __shfl_xor_sync(kAllLanes, sum, 2);       // distance 2
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

// Adds `count` sums word by word. All threads of the block must call it.
template <int Threads>
__device__ __forceinline__ void merge_sums(const ExactSum* sums,
                                           int count,
                                           bool accumulate,
                                           ExactSum* out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int word = static_cast<int>(threadIdx.x) / kWarp; word < ExactSum::kWords;
       word += Threads / kWarp) {
    uint64_t sum = 0;
    for (int i = lane; i < count; i += kWarp) sum += sums[i].words[word];
    sum = warp_reduce<Sum>(sum);
    if (lane == 0) out->words[word] = (accumulate ? out->words[word] : 0) + sum;
  }
}

// Every group adds its chunks to a private sum, and the block adds the sums of its groups.
template <bool Vectors>
__global__ void __launch_bounds__(kSquaresThreads)
    add_squares_kernel(const float* x, int64_t n, bool accumulate, ExactSum* out) {
  __shared__ uint64_t words[kSquaresGroups * ExactSum::kWords];
  ExactSum* const sums = reinterpret_cast<ExactSum*>(words);
  const int group = static_cast<int>(threadIdx.x) / kSquaresGroup,
            j = static_cast<int>(threadIdx.x) % kSquaresGroup;
  for (int word = j; word < ExactSum::kWords; word += kSquaresGroup) sums[group].words[word] = 0;
  __syncwarp();
  const int64_t chunks = (n + kSquaresChunk - 1) / kSquaresChunk;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kSquaresGroups; first < chunks;
       first += static_cast<int64_t>(gridDim.x) * kSquaresGroups) {
    const int64_t begin = (first + group) * kSquaresChunk;
    const ExactParts parts = exact_parts(chunk_squares<Vectors>(x + begin, n - begin));
    // Each thread adds a different word, so no atomics are needed.
    const uint64_t part = j == 0 ? parts.at[0] : j == 1 ? parts.at[1] : parts.at[2];
    if (j < 3) sums[group].words[parts.first + j] += part;
    __syncwarp();
  }
  __syncthreads();
  merge_sums<kSquaresThreads>(sums, kSquaresGroups, accumulate, out + blockIdx.x);
}

__global__ void __launch_bounds__(kMergeThreads)
    merge_sums_kernel(const ExactSum* sums, int count, ExactSum* out) {
  merge_sums<kMergeThreads>(sums, count, /*accumulate=*/true, out);
}

}  // namespace

void add_squares(const float* x, int64_t n, ExactSum* workspace, ExactSum* sum, Stream stream) {
  if (n == 0) return;
  const unsigned needed = blocks_for(n, kSquaresBlock);
  const unsigned blocks = needed < kSquaresBlocks ? needed : kSquaresBlocks;
  const bool alone = blocks == 1;
  launch({blocks, kSquaresThreads, stream},
         is_aligned(x) ? add_squares_kernel<true> : add_squares_kernel<false>,
         x,
         n,
         alone,
         alone ? sum : workspace);
  if (alone) return;
  launch({1, kMergeThreads, stream}, merge_sums_kernel, workspace, static_cast<int>(blocks), sum);
}

}  // namespace lockstep::cuda

#include "runtime/cuda/ops/loss_rows.h"

#include <algorithm>

#include "runtime/cuda/for_each.h"
#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;

// In the order of the statistics.
struct Sums {
  double loss = 0, counted = 0, correct = 0, top5 = 0;

  __device__ __forceinline__ void add(const Sums& other) {
    loss += other.loss;
    counted += other.counted;
    correct += other.correct;
    top5 += other.top5;
  }
};

// Writes the sum of at(0) to at(count - 1) once all threads of the block have read theirs.
template <typename At>
__device__ __forceinline__ void sum_in_block(int64_t count, At at, Sums* to) {
  Sums sums;
  // No branch in `at`, so that several are loaded at once: one block waits for all of them.
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sums.add(at(i));
  sums.loss = block_reduce<Sum, kThreads>(sums.loss);
  sums.counted = block_reduce<Sum, kThreads>(sums.counted);
  sums.correct = block_reduce<Sum, kThreads>(sums.correct);
  sums.top5 = block_reduce<Sum, kThreads>(sums.top5);
  if (threadIdx.x == 0) *to = sums;
}

__device__ __forceinline__ int64_t first_of_part(int64_t part, int64_t parts, int64_t count) {
  return count * part / parts;
}

// A block sums a part of the rows. Without `statistics`, the sums take the place of the part's
// first two rows.
__global__ void __launch_bounds__(kThreads)
    sum_row_losses_kernel(RowLoss* rows, int64_t count, Sums* statistics) {
  RowLoss* const part = rows + first_of_part(blockIdx.x, gridDim.x, count);
  const RowLoss* const end = rows + first_of_part(blockIdx.x + 1, gridDim.x, count);
  const auto at = [&](int64_t i) -> Sums {
    const RowLoss row = part[i];
    const bool counts = row.correct != kNotCounted;
    return {counts ? row.loss : 0,
            counts ? row.weight : 0,
            counts ? row.correct : 0,
            counts ? row.top5 : 0};
  };
  sum_in_block(end - part, at, statistics != nullptr ? statistics : reinterpret_cast<Sums*>(part));
}

__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(const RowLoss* rows, int64_t count, int64_t parts, Sums* statistics) {
  const auto at = [&](int64_t part) {
    return *reinterpret_cast<const Sums*>(rows + first_of_part(part, parts, count));
  };
  sum_in_block(parts, at, statistics);
}

// Weights are passed to the device as kernel arguments, a chunk at a time, so a recorded graph
// holds them.
struct WeightChunk {
  static constexpr int64_t kMax = 512;
  float values[kMax];
};

__global__ void copy_weights_kernel(WeightChunk chunk, int64_t count, float* weights) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) weights[i] = chunk.values[i];
}

// A warp handles a sequence.
__global__ void __launch_bounds__(kThreads) sum_sequence_rows_kernel(const RowLoss* rows,
                                                                     int64_t sequences,
                                                                     int64_t sequence_rows,
                                                                     float* sums) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (n >= sequences) return;
  const int lane = threadIdx.x % kWarp;
  double loss = 0;
  for (int64_t t = lane; t < sequence_rows; t += kWarp) {
    const RowLoss row = rows[n * sequence_rows + t];
    loss += row.correct != kNotCounted ? row.loss : 0;
  }
  loss = warp_reduce<Sum>(loss);
  if (lane == 0) sums[n] = static_cast<float>(-loss);
}

struct ScaleRows {
  const float* d_sums;
  int64_t sequence_rows;
  float* scales;
  template <typename Count>
  __device__ void operator()(int64_t row, Count) const {
    scales[row] = -d_sums[row / sequence_rows];
  }
};

}  // namespace

void copy_weights(const float* weights, int64_t count, float* to, Stream stream) {
  constexpr int kWeightThreads = 128;
  for (int64_t begin = 0; begin < count; begin += WeightChunk::kMax) {
    const int64_t part = std::min(WeightChunk::kMax, count - begin);
    WeightChunk chunk = {};
    std::copy_n(weights + begin, part, chunk.values);
    launch({blocks_for(part, kWeightThreads), kWeightThreads, stream},
           copy_weights_kernel,
           chunk,
           part,
           to + begin);
  }
}

void sum_row_losses(RowLoss* rows, int64_t count, double* statistics, Stream stream) {
  auto* const sums = reinterpret_cast<Sums*>(statistics);
  const int64_t parts = loss_row_parts(count);
  if (parts == 1) return launch({1, kThreads, stream}, sum_row_losses_kernel, rows, count, sums);
  launch({static_cast<unsigned>(parts), kThreads, stream},
         sum_row_losses_kernel,
         rows,
         count,
         static_cast<Sums*>(nullptr));
  launch({1, kThreads, stream}, sum_parts_kernel, rows, count, parts, sums);
}

void sum_sequence_rows(
    const RowLoss* results, int64_t rows, int64_t sequence_rows, float* sums, Stream stream) {
  const int64_t sequences = rows / sequence_rows;
  launch({blocks_for(sequences, kThreads / kWarp), kThreads, stream},
         sum_sequence_rows_kernel,
         results,
         sequences,
         sequence_rows,
         sums);
}

void scale_sequence_rows(
    const float* d_sums, int64_t rows, int64_t sequence_rows, float* scales, Stream stream) {
  for_each_flat<1>(rows, false, ScaleRows{d_sums, sequence_rows, scales}, stream);
}

}  // namespace lockstep::cuda

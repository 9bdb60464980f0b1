#include "runtime/cuda/ops/loss_rows.h"

#include <algorithm>

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads)
    sum_row_losses_kernel(const RowLoss* rows, int64_t count, double* statistics) {
  double loss = 0, counted = 0, correct = 0, top5 = 0;
  // No branch, so that several rows are loaded at once: one block waits for all of them.
#pragma unroll 8
  for (int64_t r = threadIdx.x; r < count; r += kThreads) {
    const RowLoss row = rows[r];
    const bool counts = row.correct != kNotCounted;
    loss += counts ? row.loss : 0;
    counted += counts ? row.weight : 0;
    correct += counts ? row.correct : 0;
    top5 += counts ? row.top5 : 0;
  }
  loss = block_reduce<Sum, kThreads>(loss);
  counted = block_reduce<Sum, kThreads>(counted);
  correct = block_reduce<Sum, kThreads>(correct);
  top5 = block_reduce<Sum, kThreads>(top5);
  if (threadIdx.x > 0) return;
  statistics[0] = loss;
  statistics[1] = counted;
  statistics[2] = correct;
  statistics[3] = top5;
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

void sum_row_losses(const RowLoss* rows, int64_t count, double* statistics, Stream stream) {
  launch({1, kThreads, stream}, sum_row_losses_kernel, rows, count, statistics);
}

}  // namespace lockstep::cuda

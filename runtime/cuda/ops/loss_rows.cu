#include "runtime/cuda/ops/loss_rows.h"

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

}  // namespace

void sum_row_losses(const RowLoss* rows, int64_t count, double* statistics, Stream stream) {
  launch({1, kThreads, stream}, sum_row_losses_kernel, rows, count, statistics);
}

}  // namespace lockstep::cuda

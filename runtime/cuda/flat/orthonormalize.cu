#include "runtime/cuda/flat/orthonormalize.h"

#include <cmath>

#include "collectives/power_sgd/power_sgd_math.h"
#include "runtime/base/check.h"
#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kAtOnce = 4;  // rows that a thread loads before it processes the first

// One block. `width` threads, a power of two, are arranged along the columns: thread l handles
// column l. The other threads form further such rows. Each pass over the rows subtracts one pivot
// from the columns after it and computes the products of the next pivot.
__global__ void __launch_bounds__(kThreads)
    orthonormalize_kernel(float* left, int64_t rows, int rank, int width) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ double parts[kWarps][kWarp];
  __shared__ double dots[kWarp];
  const int column = threadIdx.x % width, lane = threadIdx.x % kWarp;
  const int row_lane = lane - column;  // of the first thread of this row
  const int64_t step = kThreads / width;
  const bool inside = column < rank;
  double factor = 0;  // of the pivot in this column; in the pivot itself, its scale
  double taken = 0;   // squares of what was subtracted from this column
  for (int pivot = -1; pivot < rank; ++pivot) {
    const int next = pivot + 1;
    double dot = 0;
    // All threads of a warp visit the same number of rows.
    for (int64_t base = 0; base < rows; base += step * kAtOnce) {
      double values[kAtOnce];
      const int64_t first = base + threadIdx.x / width;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t row = first + i * step;
        values[i] = inside && row < rows ? left[row * rank + column] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t row = first + i * step;
        if (pivot >= 0) {
          const double of_pivot = __shfl_sync(kAllLanes, values[i], row_lane + pivot);
          float stored = static_cast<float>(values[i]);
          if (column == pivot) stored = static_cast<float>(values[i] * factor);
          if (column > pivot) stored = static_cast<float>(values[i] - factor * of_pivot);
          if (inside && row < rows && column >= pivot) left[row * rank + column] = stored;
          values[i] = stored;
        }
        if (next < rank) dot += values[i] * __shfl_sync(kAllLanes, values[i], row_lane + next);
      }
    }
    if (next == rank) return;
    for (int distance = kWarp / 2; distance >= width; distance /= 2)
      dot += __shfl_xor_sync(kAllLanes, dot, distance);
    parts[threadIdx.x / kWarp][lane] = dot;
    __syncthreads();
    if (threadIdx.x < static_cast<unsigned>(width)) {
      double sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp][threadIdx.x];
      dots[threadIdx.x] = sum;
    }
    __syncthreads();
    const double squares = dots[next];
    // The threads of the next pivot's column know what was subtracted from it.
    const double taken_next = __shfl_sync(kAllLanes, taken, row_lane + next);
    const bool nothing = collectives::is_next_to_nothing(squares, taken_next);
    if (column == next) {
      factor = nothing ? 0 : 1 / sqrt(squares);
    } else {
      factor = nothing ? 0 : dots[column] / squares;
      taken += factor * dots[column];
    }
  }
}

}  // namespace

void orthonormalize(float* left, int64_t rows, int rank, Stream stream) {
  LOCKSTEP_REQUIRE(rank >= 1 && rank <= collectives::kMaxPowerSgdRank);
  int width = 1;
  while (width < rank) width *= 2;
  launch({1, kThreads, stream}, orthonormalize_kernel, left, rows, rank, width);
}

}  // namespace lockstep::cuda

#include "runtime/cuda/column_sum.h"

#include <algorithm>

#include "runtime/cuda/device.h"

namespace lockstep::cuda {
namespace {

constexpr int kGroups = 32;    // of partials, each summed by one thread
constexpr int kThreads = 128;  // of a block that sums rows
constexpr int64_t kRowBlocks = 256;
constexpr int64_t kFewestRows = 16;  // in a block of rows

int64_t rows_per_block(int64_t rows) {
  return std::max(kFewestRows, (rows + kRowBlocks - 1) / kRowBlocks);
}

// Threads (32, kGroups): x is the column within the block's 32, y the group.
__global__ void __launch_bounds__(kWarp* kGroups) sum_partials_kernel(
    const float* partials, int64_t count, int64_t columns, bool accumulate, float* out) {
  __shared__ float sums[kGroups][kWarp];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (int64_t p = threadIdx.y; p < count; p += kGroups) sum += partials[p * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  sum = accumulate ? out[column] : 0.0f;
  for (int group = 0; group < kGroups; ++group) sum += sums[group][threadIdx.x];
  out[column] = sum;
}

// A thread sums N neighbouring columns over the block's rows.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) column_sum_kernel(const T* x,
                                                              int64_t rows,
                                                              int64_t columns,
                                                              int64_t stride,
                                                              int64_t block_rows,
                                                              float* partials) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= columns) return;
  const int64_t begin = blockIdx.y * block_rows;
  const int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
  float sums[N] = {};
#pragma unroll 4
  for (int64_t row = begin; row < end; ++row) {
    float values[N];
    load(x + row * stride + column, values);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += values[i];
  }
  for (int i = 0; i < N; ++i) partials[blockIdx.y * columns + column + i] = sums[i];
}

template <typename T, int N>
void start_column_sum(const T* x,
                      int64_t rows,
                      int64_t columns,
                      int64_t stride,
                      int64_t block_rows,
                      float* partials,
                      Stream stream) {
  const dim3 grid{blocks_for(columns, kThreads * N), blocks_for(rows, block_rows), 1};
  launch({grid, {kThreads, 1, 1}, stream},
         column_sum_kernel<T, N>,
         x,
         rows,
         columns,
         stride,
         block_rows,
         partials);
}

}  // namespace

void sum_partials(const float* partials,
                  int64_t count,
                  int64_t columns,
                  bool accumulate,
                  float* out,
                  Stream stream) {
  launch({{blocks_for(columns, kWarp), 1, 1}, {kWarp, kGroups, 1}, stream},
         sum_partials_kernel,
         partials,
         count,
         columns,
         accumulate,
         out);
}

template <typename T>
void column_sum(const T* x,
                int64_t rows,
                int64_t columns,
                int64_t stride,
                bool accumulate,
                float* out,
                float* workspace,
                Stream stream) {
  const int64_t block_rows = rows_per_block(rows);
  constexpr int kWide = kVectorWidth<T>;
  if (columns % kWide == 0 && is_vectorizable<T>(stride, {x})) {
    start_column_sum<T, kWide>(x, rows, columns, stride, block_rows, workspace, stream);
  } else {
    start_column_sum<T, 1>(x, rows, columns, stride, block_rows, workspace, stream);
  }
  sum_partials(workspace, blocks_for(rows, block_rows), columns, accumulate, out, stream);
}

size_t column_sum_workspace_bytes(int64_t rows, int64_t columns) {
  return blocks_for(rows, rows_per_block(rows)) * static_cast<size_t>(columns) * sizeof(float);
}

template void column_sum(const float*, int64_t, int64_t, int64_t, bool, float*, float*, Stream);
template void column_sum(const BFloat16*, int64_t, int64_t, int64_t, bool, float*, float*, Stream);
template void column_sum(const Float16*, int64_t, int64_t, int64_t, bool, float*, float*, Stream);

}  // namespace lockstep::cuda

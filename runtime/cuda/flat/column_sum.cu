#include "runtime/cuda/flat/column_sum.h"

#include <algorithm>

#include "runtime/cuda/row_tiles.h"

namespace lockstep::cuda {
namespace {

constexpr int kGroups = 32;  // of partials; one thread sums each group

// Threads (32, kGroups): x is the column within the block's 32, y the group. Blocks (columns / 32,
// matrices).
__global__ void __launch_bounds__(kWarp* kGroups) sum_partials_kernel(const float* partials,
                                                                      int64_t count,
                                                                      int64_t columns,
                                                                      bool accumulate,
                                                                      float* out,
                                                                      float* second_out) {
  __shared__ float sums[kGroups][kWarp];
  if (blockIdx.y > 0) {
    partials += count * columns;
    out = second_out;
  }
  if (out == nullptr) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t p = threadIdx.y; p < count; p += kGroups) sum += partials[p * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  sum = accumulate ? out[column] : 0.0f;
  for (int group = 0; group < kGroups; ++group) sum += sums[group][threadIdx.x];
  out[column] = sum;
}

// Each block sums its rows. If there are few columns, the block's threads form several rows, which
// share the rows of x.
template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads, kColumnSumBlocks)
    column_sum_kernel(const T* x,
                      int64_t rows,
                      int64_t columns,
                      int64_t stride,
                      int width,
                      int64_t block_rows,
                      float* partials) {
  const TilePosition<N> position(width, block_rows, rows);
  const bool inside = position.channel < columns;
  float sums[N] = {};
  if (inside) {
#pragma unroll 4
    for (int64_t row = position.begin; row < position.end; row += position.step) {
      float values[N];
      load(x + row * stride + position.channel, values);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += values[i];
    }
  }
  add_up_tile(sums, width);
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
  store(sums, partials + static_cast<int64_t>(blockIdx.x) * columns + position.channel);
}

// Returns the number of partials.
template <typename T, int N>
int64_t start_column_sum(const T* x,
                         int64_t rows,
                         int64_t columns,
                         int64_t stride,
                         float* partials,
                         const LaunchContext& context) {
  const RowTiles tiles = column_sum_tiles(rows, columns, N, context.multiprocessors);
  launch({grid_of(tiles), kTileThreads, context.stream},
         column_sum_kernel<T, N>,
         x,
         rows,
         columns,
         stride,
         tiles.width,
         tiles.block_rows,
         partials);
  return tiles.row_blocks;
}

}  // namespace

void sum_partials(const float* partials,
                  int64_t count,
                  int64_t columns,
                  bool accumulate,
                  float* out,
                  float* second_out,
                  Stream stream) {
  const unsigned matrices = second_out == nullptr ? 1 : 2;
  launch({{blocks_for(columns, kWarp), matrices, 1}, {kWarp, kGroups, 1}, stream},
         sum_partials_kernel,
         partials,
         count,
         columns,
         accumulate,
         out,
         second_out);
}

template <typename T>
void column_sum(const T* x,
                int64_t rows,
                int64_t columns,
                int64_t stride,
                bool accumulate,
                float* out,
                float* workspace,
                const LaunchContext& context) {
  constexpr int kWide = kVectorWidth<T>;
  const bool vectors = columns % kWide == 0 && is_vectorizable<T>(stride, {x});
  const int64_t count =
      vectors ? start_column_sum<T, kWide>(x, rows, columns, stride, workspace, context)
              : start_column_sum<T, 1>(x, rows, columns, stride, workspace, context);
  sum_partials(workspace, count, columns, accumulate, out, nullptr, context.stream);
}

template void column_sum(
    const float*, int64_t, int64_t, int64_t, bool, float*, float*, const LaunchContext&);
template void column_sum(
    const BFloat16*, int64_t, int64_t, int64_t, bool, float*, float*, const LaunchContext&);
template void column_sum(
    const Float16*, int64_t, int64_t, int64_t, bool, float*, float*, const LaunchContext&);

}  // namespace lockstep::cuda

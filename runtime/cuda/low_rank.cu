#include "runtime/cuda/low_rank.h"

#include <cmath>

#include "runtime/base/check.h"
#include "runtime/cuda/flat.h"

namespace lockstep::cuda {
namespace {

// Columns of a factor that a thread holds at once: a number of them that is all of the rank, and
// read as vectors; or up to so many from `first` on.
template <int N, bool Whole>
struct Group {
  static constexpr int kCount = N;
  int rank;
  int first;

  // Those of one row; zeros beyond the last.
  __device__ __forceinline__ void load_row(const float* factor, int64_t row, float (&to)[N]) const {
    if constexpr (Whole) {
      load(factor + row * N, to);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) to[k] = first + k < rank ? factor[row * rank + first + k] : 0.0f;
    }
  }
  __device__ __forceinline__ bool has(int k) const { return Whole || first + k < rank; }
  __device__ __forceinline__ int64_t at(int64_t row, int k) const {
    return row * (Whole ? N : rank) + first + k;
  }
};

// Calls start(group of which `first` is not set yet, how many groups there are).
template <typename Start>
void with_groups(int rank, const float* factor, Start start) {
  LOCKSTEP_REQUIRE(rank >= 1 && rank <= kMaxLowRank);
  if (is_aligned(factor)) {
    switch (rank) {
      case 1: return start(Group<1, true>{rank, 0}, 1u);
      case 2: return start(Group<2, true>{rank, 0}, 1u);
      case 4: return start(Group<4, true>{rank, 0}, 1u);
      case 8: return start(Group<8, true>{rank, 0}, 1u);
      default: break;
    }
  }
  if (rank <= 4) return start(Group<4, false>{rank, 0}, 1u);
  start(Group<8, false>{rank, 0}, blocks_for(rank, 8));
}

// ---- left = matrix * right ----

constexpr int kLeftThreads = 128;
constexpr int kLeftRows = 4;  // of a block

// Sums N values over the warp's lanes; each lane then has the sum of value lane / (32 / N).
template <int N>
__device__ __forceinline__ float warp_sums(float (&values)[N]) {
  const unsigned lane = threadIdx.x % kWarp;
  int distance = kWarp / 2;
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float sent = upper ? values[i] : values[i + half];
      const float kept = upper ? values[i + half] : values[i];
      values[i] = kept + __shfl_xor_sync(kAllLanes, sent, distance);
    }
  }
#pragma unroll
  for (int last = kWarp / N / 2; last > 0; last /= 2)
    values[0] += __shfl_xor_sync(kAllLanes, values[0], last);
  return values[0];
}

// Each block a few rows, its threads side by side along the columns; grid (blocks of rows *
// groups): those of the same rows follow one another.
template <typename G>
__global__ void __launch_bounds__(kLeftThreads) low_rank_left_kernel(const float* matrix,
                                                                     const float* right,
                                                                     LowRankShape shape,
                                                                     G group,
                                                                     unsigned groups,
                                                                     float* left) {
  constexpr int kCount = G::kCount, kSums = kLeftRows * kCount;
  constexpr int kWarps = kLeftThreads / kWarp;
  group.first = static_cast<int>(blockIdx.x % groups) * kCount;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / groups) * kLeftRows;
  const int64_t columns = shape.columns;
  const float* rows[kLeftRows];
#pragma unroll
  for (int i = 0; i < kLeftRows; ++i) {
    // Rows past the last read the last.
    const int64_t row = first_row + i < shape.rows ? first_row + i : shape.rows - 1;
    rows[i] = matrix + row * columns;
  }
  float sums[kSums] = {};
#pragma unroll 2
  for (int64_t column = threadIdx.x; column < columns; column += kLeftThreads) {
    float factors[kCount];
    group.load_row(right, column, factors);
#pragma unroll
    for (int i = 0; i < kLeftRows; ++i) {
      const float m = rows[i][column];
#pragma unroll
      for (int k = 0; k < kCount; ++k) sums[i * kCount + k] += m * factors[k];
    }
  }
  __shared__ float parts[kWarps][kWarp];
  parts[threadIdx.x / kWarp][threadIdx.x % kWarp] = warp_sums(sums);
  __syncthreads();
  if (threadIdx.x >= kSums) return;
  constexpr int kLanesEach = kWarp / kSums;
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp][threadIdx.x * kLanesEach];
  const int k = threadIdx.x % kCount;
  const int64_t row = first_row + threadIdx.x / kCount;
  if (row < shape.rows && group.has(k)) left[group.at(row, k)] = sum;
}

// ---- right = matrix^T * left ----

constexpr int kRightThreads = 512;

// Columns of a block: as many as warps read well, but few enough for blocks to fill a GPU. The
// shape alone decides, as the order of the sums depends on it.
int strip_width(int64_t columns) {
  constexpr int64_t kBlocks = 128;
  int width = kWarp;
  while (width > 8 && columns < kBlocks * width) width /= 2;
  return width;
}

// Each block a strip of columns, `width` threads side by side and the others below one another;
// grid (strips * groups): those of the same strip follow one another.
template <typename G>
__global__ void __launch_bounds__(kRightThreads) low_rank_right_kernel(const float* matrix,
                                                                       const float* left,
                                                                       LowRankShape shape,
                                                                       int width,
                                                                       G group,
                                                                       unsigned groups,
                                                                       float* right) {
  constexpr int kCount = G::kCount;
  constexpr int kWarps = kRightThreads / kWarp;
  __shared__ float parts[kWarps][kCount][kWarp];
  group.first = static_cast<int>(blockIdx.x % groups) * kCount;
  const int64_t column = static_cast<int64_t>(blockIdx.x / groups) * width + threadIdx.x % width;
  const bool inside = column < shape.columns;
  float sums[kCount] = {};
  if (inside) {
#pragma unroll 4
    for (int64_t row = threadIdx.x / width; row < shape.rows; row += kRightThreads / width) {
      float factors[kCount];
      group.load_row(left, row, factors);
      const float m = matrix[row * shape.columns + column];
#pragma unroll
      for (int k = 0; k < kCount; ++k) sums[k] += m * factors[k];
    }
  }
  for (int distance = kWarp / 2; distance >= width; distance /= 2) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] += __shfl_xor_sync(kAllLanes, sums[k], distance);
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) parts[threadIdx.x / kWarp][k][threadIdx.x % kWarp] = sums[k];
  __syncthreads();
  if (!inside || threadIdx.x >= static_cast<unsigned>(width)) return;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if (!group.has(k)) break;
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp][k][threadIdx.x];
    right[group.at(column, k)] = sum;
  }
}

// ---- matrix = left * right^T ----

constexpr int kProductThreads = 256;
constexpr int kProductRows = 16;  // of a block

template <typename G>
__global__ void __launch_bounds__(kProductThreads) low_rank_product_kernel(const float* left,
                                                                           const float* right,
                                                                           LowRankShape shape,
                                                                           unsigned column_blocks,
                                                                           G group,
                                                                           unsigned groups,
                                                                           float* matrix) {
  constexpr int kCount = G::kCount;
  const int64_t column =
      static_cast<int64_t>(blockIdx.x % column_blocks) * kProductThreads + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.x / column_blocks) * kProductRows;
  if (column >= shape.columns) return;
  float sums[kProductRows] = {};
  for (unsigned g = 0; g < groups; ++g, group.first += kCount) {
    float across[kCount];
    group.load_row(right, column, across);
#pragma unroll
    for (int i = 0; i < kProductRows; ++i) {
      if (begin + i >= shape.rows) break;
      float down[kCount];
      group.load_row(left, begin + i, down);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (group.has(k)) sums[i] += down[k] * across[k];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kProductRows; ++i) {
    if (begin + i < shape.rows) matrix[(begin + i) * shape.columns + column] = sums[i];
  }
}

struct Subtract {
  float* matrix;
  const float* product;
  float factor;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float m[Count::value], p[Count::value];
    load(matrix + i, m);
    load(product + i, p);
    for (int k = 0; k < Count::value; ++k) m[k] -= factor * p[k];
    store(m, matrix + i);
  }
};

// ---- Orthonormal columns ----

constexpr int kOrthoThreads = 1024;
constexpr int kOrthoAtOnce = 4;  // rows that a thread loads before it goes on with the first

// One block. `width`, a power of two, threads stand side by side along the columns, thread l of
// them in charge of column l; the others below one another. One pass over the rows for each column:
// it takes one pivot off the columns after it and finds the products of the next.
__global__ void __launch_bounds__(kOrthoThreads)
    orthonormalize_kernel(float* left, int64_t rows, int rank, int width) {
  constexpr int kWarps = kOrthoThreads / kWarp;
  __shared__ double parts[kWarps][kWarp];
  __shared__ double dots[kWarp];
  const int column = threadIdx.x % width, lane = threadIdx.x % kWarp;
  const int row_lane = lane - column;  // of the first thread of this row
  const int64_t step = kOrthoThreads / width;
  const bool inside = column < rank;
  double factor = 0;  // of the pivot in this column; in the pivot itself, what scales it
  double taken = 0;   // squares of what was taken off this column
  for (int pivot = -1; pivot < rank; ++pivot) {
    const int next = pivot + 1;
    double dot = 0;
    // All threads of a warp go through as many rows.
    for (int64_t base = 0; base < rows; base += step * kOrthoAtOnce) {
      double values[kOrthoAtOnce];
      const int64_t first = base + threadIdx.x / width;
#pragma unroll
      for (int i = 0; i < kOrthoAtOnce; ++i) {
        const int64_t row = first + i * step;
        values[i] = inside && row < rows ? left[row * rank + column] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kOrthoAtOnce; ++i) {
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
    // What was taken off the next pivot is known to the threads in charge of it.
    const double taken_next = __shfl_sync(kAllLanes, taken, row_lane + next);
    const bool nothing = is_next_to_nothing(squares, taken_next);
    if (column == next) {
      factor = nothing ? 0 : 1 / sqrt(squares);
    } else {
      factor = nothing ? 0 : dots[column] / squares;
      taken += factor * dots[column];
    }
  }
}

// ---- A factor to begin with ----

constexpr int kFillThreads = 256;

// One block.
__global__ void __launch_bounds__(kFillThreads)
    fill_zero_columns_kernel(float* right, int64_t n, int rank) {
  __shared__ int filled[kMaxLowRank];
  if (threadIdx.x < kMaxLowRank) filled[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += kFillThreads) {
    if (right[i] != 0) filled[i % rank] = 1;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += kFillThreads) {
    if (filled[i % rank] == 0) right[i] = low_rank_noise(i);
  }
}

}  // namespace

void low_rank_left(const float* matrix,
                   const float* right,
                   const LowRankShape& shape,
                   float* left,
                   Stream stream) {
  if (shape.rows == 0) return;
  with_groups(shape.rank, right, [&]<typename G>(G group, unsigned groups) {
    launch({{blocks_for(shape.rows, kLeftRows) * groups, 1, 1}, {kLeftThreads, 1, 1}, stream},
           low_rank_left_kernel<G>,
           matrix,
           right,
           shape,
           group,
           groups,
           left);
  });
}

void low_rank_right(const float* matrix,
                    const float* left,
                    const LowRankShape& shape,
                    float* right,
                    Stream stream) {
  if (shape.columns == 0) return;
  const int width = strip_width(shape.columns);
  with_groups(shape.rank, left, [&]<typename G>(G group, unsigned groups) {
    launch({{blocks_for(shape.columns, width) * groups, 1, 1}, {kRightThreads, 1, 1}, stream},
           low_rank_right_kernel<G>,
           matrix,
           left,
           shape,
           width,
           group,
           groups,
           right);
  });
}

void fill_zero_columns(float* right, int64_t columns, int rank, Stream stream) {
  LOCKSTEP_REQUIRE(rank >= 1 && rank <= kMaxLowRank);
  launch({{1, 1, 1}, {kFillThreads, 1, 1}, stream},
         fill_zero_columns_kernel,
         right,
         columns * rank,
         rank);
}

void orthonormalize(float* left, int64_t rows, int rank, Stream stream) {
  LOCKSTEP_REQUIRE(rank >= 1 && rank <= kMaxLowRank);
  int width = 1;
  while (width < rank) width *= 2;
  launch(
      {{1, 1, 1}, {kOrthoThreads, 1, 1}, stream}, orthonormalize_kernel, left, rows, rank, width);
}

void low_rank_product(const float* left,
                      const float* right,
                      const LowRankShape& shape,
                      float* matrix,
                      Stream stream) {
  if (shape.rows == 0 || shape.columns == 0) return;
  const unsigned column_blocks = blocks_for(shape.columns, kProductThreads);
  const float* const aligned = is_aligned(left) ? right : left;  // both, or else one that is not
  with_groups(shape.rank, aligned, [&]<typename G>(G group, unsigned groups) {
    launch({{column_blocks * blocks_for(shape.rows, kProductRows), 1, 1},
            {kProductThreads, 1, 1},
            stream},
           low_rank_product_kernel<G>,
           left,
           right,
           shape,
           column_blocks,
           group,
           groups,
           matrix);
  });
}

void low_rank_subtract(
    float* matrix, const float* product, float factor, int64_t n, Stream stream) {
  const Subtract subtract = {matrix, product, factor};
  for_each_flat<4>(n, is_aligned(matrix) && is_aligned(product), subtract, stream);
}

}  // namespace lockstep::cuda

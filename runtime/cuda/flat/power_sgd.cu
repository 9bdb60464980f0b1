#include "runtime/cuda/flat/power_sgd.h"

#include "runtime/base/check.h"
#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

// Columns of a factor that a thread holds at once: either all columns (Whole), read as vectors, or
// up to N columns from `first` on.
template <int N, bool Whole>
struct Group {
  static constexpr int kCount = N;
  int rank;
  int first;

  // Loads the columns of one row; zeros beyond the last.
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

// Calls start(group without its `first`, number of groups).
template <typename Start>
void with_groups(int rank, const float* factor, Start start) {
  LOCKSTEP_REQUIRE(rank >= 1 && rank <= collectives::kMaxPowerSgdRank);
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
constexpr int kLeftRows = 4;  // per block

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

// Each block handles a few rows, with its threads along the columns. Grid (blocks of rows *
// groups): blocks of the same rows are consecutive.
template <typename G>
__global__ void __launch_bounds__(kLeftThreads)
    power_sgd_left_kernel(const float* matrix,
                          const float* right,
                          collectives::PowerSgdShape shape,
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
    // Past the end, the last row is read again.
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
constexpr int kRightAtOnce = 8;  // rows that a thread loads before it processes the first
// Blocks that must fit on a multiprocessor; 0 leaves it to the compiler, which spills registers to
// fit three blocks of the largest group.
template <typename G>
constexpr int kRightMinBlocks = std::is_same_v<G, Group<8, true>> ? 2 : 0;

// Columns of a block: enough for warps to read efficiently, but few enough for the blocks to fill a
// GPU. Depends on the shape alone, because the order of the sums depends on it.
int strip_width(int64_t columns) {
  constexpr int64_t kBlocks = 128;
  int width = kWarp;
  while (width > 8 && columns < kBlocks * width) width /= 2;
  return width;
}

// sums += rows `row`, row + step, ... of one column of the matrix, each times its row of `left`.
template <int AtOnce, typename G, int N>
__device__ __forceinline__ void add_rows(const float* column,
                                         const float* left,
                                         int64_t columns,
                                         int64_t row,
                                         int64_t step,
                                         const G& group,
                                         float (&sums)[N]) {
  float m[AtOnce];
#pragma unroll
  for (int i = 0; i < AtOnce; ++i) m[i] = column[(row + i * step) * columns];
#pragma unroll
  for (int i = 0; i < AtOnce; ++i) {
    float factors[N];
    group.load_row(left, row + i * step, factors);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] += m[i] * factors[k];
  }
}

// Each block handles a strip of columns, `width` threads along the columns and the rest along the
// rows. Grid (strips * groups): blocks of the same strip are consecutive.
template <typename G>
__global__ void __launch_bounds__(kRightThreads, kRightMinBlocks<G>)
    power_sgd_right_kernel(const float* matrix,
                           const float* left,
                           collectives::PowerSgdShape shape,
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
    const int64_t step = kRightThreads / width;
    int64_t row = threadIdx.x / width;
    for (; row + (kRightAtOnce - 1) * step < shape.rows; row += kRightAtOnce * step)
      add_rows<kRightAtOnce>(matrix + column, left, shape.columns, row, step, group, sums);
    for (; row < shape.rows; row += step)
      add_rows<1>(matrix + column, left, shape.columns, row, step, group, sums);
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
constexpr int kProductRows = 16;  // per block

template <typename G>
__global__ void __launch_bounds__(kProductThreads)
    power_sgd_product_kernel(const float* left,
                             const float* right,
                             collectives::PowerSgdShape shape,
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

// ---- Initial factors ----

constexpr int kFillThreads = 256;

// One block.
__global__ void __launch_bounds__(kFillThreads)
    fill_zero_columns_kernel(float* right, int64_t columns, int rank) {
  static_assert(collectives::kMaxPowerSgdRank <= 32);
  __shared__ unsigned of_threads[kFillThreads];
  unsigned seen = 0;  // bit k: column k has a non-zero element
  for (int64_t row = threadIdx.x; row < columns; row += kFillThreads) {
    for (int k = 0; k < rank; ++k) seen |= (right[row * rank + k] != 0 ? 1u : 0u) << k;
  }
  of_threads[threadIdx.x] = seen;
  __syncthreads();
  unsigned filled = 0;
  for (int thread = 0; thread < kFillThreads; ++thread) filled |= of_threads[thread];
  for (int64_t row = threadIdx.x; row < columns; row += kFillThreads) {
    for (int k = 0; k < rank; ++k) {
      if ((filled >> k & 1) == 0)
        right[row * rank + k] = collectives::power_sgd_noise(row * rank + k);
    }
  }
}

}  // namespace

void power_sgd_left(const float* matrix,
                    const float* right,
                    const collectives::PowerSgdShape& shape,
                    float* left,
                    Stream stream) {
  if (shape.rows == 0) return;
  with_groups(shape.rank, right, [&]<typename G>(G group, unsigned groups) {
    launch({blocks_for(shape.rows, kLeftRows) * groups, kLeftThreads, stream},
           power_sgd_left_kernel<G>,
           matrix,
           right,
           shape,
           group,
           groups,
           left);
  });
}

void power_sgd_right(const float* matrix,
                     const float* left,
                     const collectives::PowerSgdShape& shape,
                     float* right,
                     Stream stream) {
  if (shape.columns == 0) return;
  const int width = strip_width(shape.columns);
  with_groups(shape.rank, left, [&]<typename G>(G group, unsigned groups) {
    launch({blocks_for(shape.columns, width) * groups, kRightThreads, stream},
           power_sgd_right_kernel<G>,
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
  LOCKSTEP_REQUIRE(rank >= 1 && rank <= collectives::kMaxPowerSgdRank);
  launch({1, kFillThreads, stream}, fill_zero_columns_kernel, right, columns, rank);
}

void power_sgd_product(const float* left,
                       const float* right,
                       const collectives::PowerSgdShape& shape,
                       float* matrix,
                       Stream stream) {
  if (shape.rows == 0 || shape.columns == 0) return;
  const unsigned column_blocks = blocks_for(shape.columns, kProductThreads);
  const float* const aligned = is_aligned(left) ? right : left;  // aligned only if both factors are
  with_groups(shape.rank, aligned, [&]<typename G>(G group, unsigned groups) {
    launch({column_blocks * blocks_for(shape.rows, kProductRows), kProductThreads, stream},
           power_sgd_product_kernel<G>,
           left,
           right,
           shape,
           column_blocks,
           group,
           groups,
           matrix);
  });
}

void power_sgd_subtract(
    float* matrix, const float* product, float factor, int64_t n, Stream stream) {
  const Subtract subtract = {matrix, product, factor};
  for_each_flat<4>(n, is_aligned(matrix) && is_aligned(product), subtract, stream);
}

}  // namespace lockstep::cuda

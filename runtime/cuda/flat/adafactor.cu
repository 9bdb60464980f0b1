// Rows and columns are summed by two launches. Both sum a tensor (outer, count, inner) over its
// middle axis: rows are (batch rows, columns, inner), columns are (batch, rows, columns inner). One
// thread adds to each sum, so nothing is atomic; as the sums are of integers, the order is free.
#include "runtime/cuda/flat/adafactor.h"

#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

// Elements [first, first + elements) of a tensor (outer, count, inner).
struct SummedAxis {
  int64_t count, inner;
  int64_t first, elements;
  const float* gradients;
  int64_t *high, *low;  // (outer, inner)

  // Adds the square of an element, unless the piece lacks it.
  __device__ __forceinline__ void add(int64_t outer,
                                      int64_t k,
                                      int64_t i,
                                      const exec::FactoredStep& step,
                                      exec::FixedPoint& sum) const {
    const int64_t at = (outer * count + k) * inner + i - first;
    if (at < 0 || at >= elements) return;
    const exec::FixedPoint square = exec::fixed_square(gradients[at] * step.grad_scale, step.units);
    sum.high += square.high;
    sum.low += square.low;
  }
  __device__ __forceinline__ void write(int64_t index, const exec::FixedPoint& sum) const {
    high[index] += sum.high;
    low[index] += sum.low;
  }
};

constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / kWarp;

// A warp sums contiguous elements.
__global__ void __launch_bounds__(kSumThreads) sum_contiguous_kernel(
    SummedAxis axis, int64_t begin, int64_t end, const exec::FactoredStep* constants) {
  const exec::FactoredStep step = *constants;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t outer = begin + static_cast<int64_t>(blockIdx.x) * kSumWarps + threadIdx.x / kWarp;
  if (outer >= end) return;
  exec::FixedPoint sum;
  for (int64_t k = lane; k < axis.count; k += kWarp) axis.add(outer, k, 0, step, sum);
  sum.high = warp_reduce<Sum>(sum.high);
  sum.low = warp_reduce<Sum>(sum.low);
  if (lane == 0) axis.write(outer, sum);
}

// A block sums kWarp neighbours; each of its warps takes a part of the summed axis.
__global__ void __launch_bounds__(kSumThreads)
    sum_strided_kernel(SummedAxis axis, int64_t begin, const exec::FactoredStep* constants) {
  __shared__ int64_t highs[kSumThreads], lows[kSumThreads];
  const exec::FactoredStep step = *constants;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t tiles = (axis.inner + kWarp - 1) / kWarp;
  const int64_t outer = begin + blockIdx.x / tiles;
  const int64_t i = blockIdx.x % tiles * kWarp + lane;
  exec::FixedPoint sum;
  if (i < axis.inner)
    for (int64_t k = warp; k < axis.count; k += kSumWarps) axis.add(outer, k, i, step, sum);
  highs[threadIdx.x] = sum.high;
  lows[threadIdx.x] = sum.low;
  __syncthreads();
  if (warp > 0 || i >= axis.inner) return;
  for (int other = 1; other < kSumWarps; ++other) {
    sum.high += highs[other * kWarp + lane];
    sum.low += lows[other * kWarp + lane];
  }
  axis.write(outer * axis.inner + i, sum);
}

void add_along(const SummedAxis& axis, const exec::FactoredStep* step, Stream stream) {
  const int64_t one = axis.count * axis.inner;
  const int64_t begin = axis.first / one, end = (axis.first + axis.elements + one - 1) / one;
  if (axis.inner == 1) {
    launch({blocks_for(end - begin, kSumWarps), kSumThreads, stream},
           sum_contiguous_kernel,
           axis,
           begin,
           end,
           step);
    return;
  }
  const int64_t tiles = (axis.inner + kWarp - 1) / kWarp;
  launch({blocks_for((end - begin) * tiles, 1), kSumThreads, stream},
         sum_strided_kernel,
         axis,
         begin,
         step);
}

struct Directions {
  exec::FactoredPiece piece;
  const exec::FactoredStep* step;

  template <typename N>
  __device__ void operator()(int64_t i, N) const {
    const FactoredShape& shape = piece.shape;
    const int64_t element = piece.first + i;
    const int64_t channel = element % shape.inner, place = element / shape.inner;
    const int64_t column = place % shape.columns, row = place / shape.columns;
    const int64_t number = row / shape.rows * shape.columns + column;
    piece.gradients[i] =
        exec::factored_direction(piece.gradients[i],
                                 piece.factors[row * shape.inner + channel],
                                 piece.factors[shape.all_rows() + number * shape.inner + channel],
                                 *step);
  }
};

}  // namespace

void add_factored_squares(const exec::FactoredPiece& piece,
                          const exec::FactoredStep* step,
                          Stream stream) {
  if (piece.elements == 0) return;
  const FactoredShape& shape = piece.shape;
  SummedAxis axis = {.count = shape.columns,
                     .inner = shape.inner,
                     .first = piece.first,
                     .elements = piece.elements,
                     .gradients = piece.gradients,
                     .high = piece.high,
                     .low = piece.low};
  add_along(axis, step, stream);
  axis.count = shape.rows;
  axis.inner = shape.columns * shape.inner;
  axis.high += shape.all_rows();
  axis.low += shape.all_rows();
  add_along(axis, step, stream);
}

void factored_directions(const exec::FactoredPiece& piece,
                         const exec::FactoredStep* step,
                         Stream stream) {
  for_each_flat<1>(piece.elements, false, Directions{piece, step}, stream);
}

}  // namespace lockstep::cuda

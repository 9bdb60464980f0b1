#include "runtime/cuda/ops/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/cross_entropy_rows.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

// Threads per block, which handles a row. A multiprocessor has room for one block of long rows,
// which keeps all of its registers busy.
constexpr int kLong = kLongRowThreads, kShort = 32;
constexpr int64_t kShortRow = 1024;  // max columns
// Columns are counted in 32 bits, which saves registers, and a thread looks one stride ahead.
constexpr int64_t kMaxClasses = (int64_t{1} << 31) - 1 - kLong * 8;

// Vectors of 16 bytes of a row that a thread keeps in registers, so that they are read from memory
// once: short rows, and 57,344 columns of 16 bits of long ones. The rest of a row is read again in
// each pass over it. A thread of long rows has 64 registers, which have no room for more of them,
// or, beside floats or weights of classes, for as many.
template <typename T, int Threads, bool Weighted>
inline constexpr int kKept = Threads == kShort ? kShortRow / (kShort * kVectorWidth<T>)
                             : Weighted        ? 2
                                               : kept_vectors(sizeof(T));

// Whether the target's logit is the first of the largest, which are not before the vector at
// `first`.
template <typename T>
__device__ __forceinline__ bool is_first_of_largest(const T* x,
                                                    int32_t target,
                                                    float max,
                                                    int32_t first) {
  if (to_float(x[target]) != max || target < first || target - first >= kVectorWidth<T>)
    return false;
  for (int32_t column = first; column < target; ++column)
    if (to_float(x[column]) == max) return false;
  return true;
}

// The second target of a counted row, with which mixup mixes its own; its own target if it has no
// other.
template <typename T>
__device__ __forceinline__ int32_t other_target(const graph::SoftmaxCrossEntropy<T>& op,
                                                const graph::LaneContext& lane,
                                                int64_t row) {
  if (lane.mix == 1) return op.targets[row];
  const int64_t counted = lane.valid_rows < op.rows ? lane.valid_rows : op.rows;
  const int32_t other = op.targets[counted - 1 - row];
  return other >= 0 ? other : op.targets[row];
}

// The sum over the threads that handle a row.
template <int Threads>
__device__ __forceinline__ float row_sum(float x) {
  if constexpr (Threads == 1) {
    return x;
  } else {
    return block_reduce<Sum, Threads>(x);
  }
}

// A counted row, of which `part` has the elements of the calling thread (each, store). `thread`:
// its index among the row's threads. Backward: x may be overwritten by its gradient. Weighted:
// classes have weights, and there is one target.
template <int Threads, bool Backward, bool Weighted, typename T, typename Part>
__device__ __forceinline__ void softmax_row(const graph::SoftmaxCrossEntropy<T>& op,
                                            const graph::LaneContext& lane,
                                            int64_t row,
                                            const Part& part,
                                            unsigned thread,
                                            RowLoss* results) {
  const bool smooths = op.label_smoothing > 0;
  RunningSoftmax softmax;
  part.each([&](int32_t column, auto& values) { softmax.add(column, values, smooths); });
  if constexpr (Threads > 1) softmax.merge_block<Threads>();

  const T* const x = op.logits + row * op.stride;
  const int32_t target = op.targets[row];
  const float each = op.label_smoothing / static_cast<float>(op.classes);
  // The target's share, and that of a second target that differs from it.
  const int32_t other = other_target(op, lane, row);
  const bool mixed = !Weighted && other != target;
  const float weight = Weighted ? op.weights[target] : 1;
  const float weight_sum =
      Weighted ? static_cast<float>(op.weight_sum) : static_cast<float>(op.classes);
  const float targets_share = (1 - op.label_smoothing) * weight;
  const float target_share = mixed ? targets_share * lane.mix : targets_share;
  const float other_share = targets_share - target_share;
  float smooth_loss = 0;
  if (smooths) {
    float sum = softmax.plain_sum;
    if constexpr (Weighted) {
      sum = 0;
      part.each([&](int32_t column, auto& values) {
        constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += op.weights[column + i] * values[i];
      });
      sum = row_sum<Threads>(sum);
    }
    const float log_sum = fmaf(softmax.exponent, kLn2, logf(softmax.sum));
    smooth_loss = each * (weight_sum * log_sum - sum);
  }
  float larger = 0;  // number of logits above the target's, or equal and before it
  if constexpr (!Backward) {
    const float threshold = to_float(x[target]);
    part.each([&](int32_t column, auto& values) {
      constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (column + i == target) continue;
        larger += column + i < target ? !(values[i] < threshold) : !(values[i] <= threshold);
      }
    });
    larger = row_sum<Threads>(larger);
  }
  if (thread == 0) {
    const auto minus_log_p = [&](int32_t column) {
      return fmaf(fmaf(-to_float(x[column]), kLog2E, softmax.exponent), kLn2, logf(softmax.sum));
    };
    float loss = target_share * minus_log_p(target) + smooth_loss;
    if (mixed) loss += other_share * minus_log_p(other);
    const bool correct = is_first_of_largest(x, target, softmax.max, softmax.first);
    results[row] = {loss, correct ? 1.0f : 0.0f, !Backward && larger < 5 ? 1.0f : 0.0f, weight};
  }
  if constexpr (Backward) {
    if constexpr (Threads > 1) __syncthreads();  // the logits of targets have been read
    const float scale =
        op.gradient_scales == nullptr ? lane.gradient_scale : op.gradient_scales[row];
    const float p_scale =
        (Weighted ? target_share + each * weight_sum : 1.0f) * scale / softmax.sum;
    part.each([&](int32_t column, auto& values) {
      constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float term = exp2_approx(fmaf(values[i], kLog2E, -softmax.exponent));
        const float smoothed = Weighted ? each * op.weights[column + i] : each;
        values[i] = fmaf(term, p_scale, -smoothed * scale);
      }
      const auto subtract = [&](int32_t from, float share) {
        const auto at = static_cast<uint32_t>(from - column);
        if (at >= N) return;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) values[i] -= i == at ? share * scale : 0;
      };
      subtract(target, target_share);
      if (mixed) subtract(other, other_share);
      part.store(values, op.gradient + row * op.stride, column);
    });
  }
}

template <typename T>
__device__ __forceinline__ bool counts(const graph::SoftmaxCrossEntropy<T>& op,
                                       const graph::LaneContext& lane,
                                       int64_t row) {
  return op.targets[row] >= 0 && op.first_row + row < lane.valid_rows;
}

// A block handles a row.
template <typename T, int Threads, bool Backward, bool Weighted>
__global__ void __launch_bounds__(Threads)
    softmax_cross_entropy_kernel(graph::SoftmaxCrossEntropy<T> op,
                                 const graph::LaneContext* lane,
                                 RowLoss* results) {
  const int64_t row = blockIdx.x;
  T* const gradient = Backward ? op.gradient + row * op.stride : nullptr;
  if (!counts(op, *lane, row)) {
    if (threadIdx.x == 0) results[row] = {0, kNotCounted};
    if constexpr (Backward) fill_zeros<Threads>(gradient, static_cast<int32_t>(op.stride));
    return;
  }
  const RowOfThread<T, Threads, kKept<T, Threads, Weighted>, Threads == kShort> part(
      op.logits + row * op.stride, static_cast<int32_t>(op.classes));
  softmax_row<Threads, Backward, Weighted>(op, *lane, row, part, threadIdx.x, results);
  if constexpr (Backward) {
    for (int64_t c = op.classes + threadIdx.x; c < op.stride; c += Threads)
      gradient[c] = round_to<T>(0);
  }
}

// A thread handles a row of few columns, as of a pixel's classes. The rows of a block lie one after
// the other, so all threads copy them to shared memory and, as gradients, back.
constexpr int kTileRows = 128;
constexpr int64_t kTileColumns = 32;  // max elements from row to row

struct TileRow {
  // One place in 33 is free, so that rows of 2, 4, ... 32 columns begin in different banks.
  static __device__ __forceinline__ int32_t at(int32_t element) { return element + element / 32; }

  // Calls f(column, value) for all elements in ascending order.
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
    for (int32_t column = 0; column < classes; ++column) {
      float value[1] = {tile[at(begin + column)]};
      f(column, value);
    }
  }
  template <typename T>
  __device__ __forceinline__ void store(const float (&value)[1], T*, int32_t column) const {
    tile[at(begin + column)] = value[0];
  }

  float* tile;
  int32_t begin, classes;  // the row's first element, and the number of those that count
};

template <typename T, bool Backward, bool Weighted>
__global__ void __launch_bounds__(kTileRows)
    softmax_cross_entropy_tile_kernel(graph::SoftmaxCrossEntropy<T> op,
                                      const graph::LaneContext* lane,
                                      RowLoss* results) {
  __shared__ float tile[kTileRows * (kTileColumns + 1)];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileRows, row = first + threadIdx.x;
  const auto rows = static_cast<int32_t>(op.rows - first < kTileRows ? op.rows - first : kTileRows);
  const auto stride = static_cast<int32_t>(op.stride), classes = static_cast<int32_t>(op.classes);
  RowOfThread<T, kTileRows, 1, false>(op.logits + first * stride, rows * stride)
      .each([&](int32_t element, auto& values) {
        constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
        for (int i = 0; i < N; ++i) tile[TileRow::at(element + i)] = values[i];
      });
  __syncthreads();
  if (static_cast<int32_t>(threadIdx.x) < rows) {
    const TileRow part = {tile, static_cast<int32_t>(threadIdx.x) * stride, classes};
    const bool counted = counts(op, *lane, row);
    if (counted) {
      softmax_row<1, Backward, Weighted>(op, *lane, row, part, 0, results);
    } else {
      results[row] = {0, kNotCounted};
    }
    if constexpr (Backward) {
      for (int32_t c = counted ? classes : 0; c < stride; ++c)
        tile[TileRow::at(part.begin + c)] = 0;
    }
  }
  if constexpr (Backward) {
    __syncthreads();
    T* const gradient = op.gradient + first * stride;
    RowDivision<T, kTileRows>(gradient, rows * stride).each([&](int32_t element, auto& values) {
      constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = tile[TileRow::at(element + i)];
      store(values, gradient + element);
    });
  }
}

template <typename T, bool Backward, bool Weighted>
void start(const graph::SoftmaxCrossEntropy<T>& op, const graph::OpCall& call, RowLoss* results) {
  LOCKSTEP_REQUIRE(op.classes <= kMaxClasses);
  const graph::LaneContext* const lane = context_of(call).lane;
  if (op.stride <= kTileColumns)
    return launch({blocks_for(op.rows, kTileRows), kTileRows, stream_of(call)},
                  softmax_cross_entropy_tile_kernel<T, Backward, Weighted>,
                  op,
                  lane,
                  results);
  const bool is_short = op.classes <= kShortRow;
  launch(
      {blocks_for(op.rows, 1), static_cast<unsigned>(is_short ? kShort : kLong), stream_of(call)},
      is_short ? softmax_cross_entropy_kernel<T, kShort, Backward, Weighted>
               : softmax_cross_entropy_kernel<T, kLong, Backward, Weighted>,
      op,
      lane,
      results);
}

}  // namespace

template <typename T>
void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<T>& op,
                                const graph::OpCall& call,
                                RowLoss* results) {
  const bool weighted = op.weights != nullptr;
  if (op.gradient == nullptr)
    return weighted ? start<T, false, true>(op, call, results)
                    : start<T, false, false>(op, call, results);
  LOCKSTEP_REQUIRE(op.gradient == op.logits || op.stride == op.classes);
  weighted ? start<T, true, true>(op, call, results) : start<T, true, false>(op, call, results);
}
template void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<float>&,
                                         const graph::OpCall&,
                                         RowLoss*);
template void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<BFloat16>&,
                                         const graph::OpCall&,
                                         RowLoss*);
template void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<Float16>&,
                                         const graph::OpCall&,
                                         RowLoss*);

namespace {

void run(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::LossIn::kPrediction), [&]<typename T>() {
    graph::SoftmaxCrossEntropy<T> op{call};
    if (op.weights != nullptr) {
      auto* const weights = reinterpret_cast<float*>(call.workspace<RowLoss>() + op.rows);
      copy_weights(op.weights, op.classes, weights, stream_of(call));
      op.weights = weights;
    }
    softmax_cross_entropy_rows(op, call, call.workspace<RowLoss>());
    sum_row_losses(call.workspace<RowLoss>(), op.rows, op.statistics, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, softmax_cross_entropy_workspace>(graph::OpKind::kSoftmaxCrossEntropy, "native")};

}  // namespace

constinit const exec::Implementations kCudaSoftmaxCrossEntropy = kRows;

}  // namespace lockstep::cuda

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

// A block handles a row. Backward: the logits may be overwritten by their gradient. Weighted:
// classes have weights, and there is one target.
template <typename T, int Threads, bool Backward, bool Weighted>
__global__ void __launch_bounds__(Threads)
    softmax_cross_entropy_kernel(graph::SoftmaxCrossEntropy<T> op,
                                 const graph::LaneContext* lane,
                                 RowLoss* results) {
  const int64_t row = blockIdx.x;
  const T* const x = op.logits + row * op.stride;
  T* const gradient = Backward ? op.gradient + row * op.stride : nullptr;  // may be x
  const int32_t target = op.targets[row];
  if (target < 0 || op.first_row + row >= lane->valid_rows) {
    if (threadIdx.x == 0) results[row] = {0, kNotCounted};
    if constexpr (Backward) fill_zeros<Threads>(gradient, static_cast<int32_t>(op.stride));
    return;
  }

  const auto classes = static_cast<int32_t>(op.classes);
  const RowOfThread<T, Threads, kKept<T, Threads, Weighted>, Threads == kShort> part(x, classes);
  const bool smooths = op.label_smoothing > 0;
  RunningSoftmax softmax;
  part.each([&](int32_t column, auto& values) { softmax.add(column, values, smooths); });
  softmax.merge_block<Threads>();

  const float each = op.label_smoothing / static_cast<float>(op.classes);
  // The target's share, and that of a second target that differs from it.
  const int32_t other = other_target(op, *lane, row);
  const bool mixed = !Weighted && other != target;
  const float weight = Weighted ? op.weights[target] : 1;
  const float weight_sum =
      Weighted ? static_cast<float>(op.weight_sum) : static_cast<float>(op.classes);
  const float targets_share = (1 - op.label_smoothing) * weight;
  const float target_share = mixed ? targets_share * lane->mix : targets_share;
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
      sum = block_reduce<Sum, Threads>(sum);
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
    larger = block_reduce<Sum, Threads>(larger);
  }
  if (threadIdx.x == 0) {
    const auto minus_log_p = [&](int32_t column) {
      return fmaf(fmaf(-to_float(x[column]), kLog2E, softmax.exponent), kLn2, logf(softmax.sum));
    };
    float loss = target_share * minus_log_p(target) + smooth_loss;
    if (mixed) loss += other_share * minus_log_p(other);
    const bool correct = is_first_of_largest(x, target, softmax.max, softmax.first);
    results[row] = {loss, correct ? 1.0f : 0.0f, !Backward && larger < 5 ? 1.0f : 0.0f, weight};
  }
  if constexpr (Backward) {
    __syncthreads();  // the logits of targets have been read
    const float scale = lane->gradient_scale;
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
      store(values, gradient + column);
    });
    for (int64_t c = op.classes + threadIdx.x; c < op.stride; c += Threads)
      gradient[c] = round_to<T>(0);
  }
}

template <typename T, bool Backward, bool Weighted>
void start(const graph::SoftmaxCrossEntropy<T>& op, const graph::OpCall& call, RowLoss* results) {
  LOCKSTEP_REQUIRE(op.classes <= kMaxClasses);
  const bool is_short = op.classes <= kShortRow;
  launch(
      {blocks_for(op.rows, 1), static_cast<unsigned>(is_short ? kShort : kLong), stream_of(call)},
      is_short ? softmax_cross_entropy_kernel<T, kShort, Backward, Weighted>
               : softmax_cross_entropy_kernel<T, kLong, Backward, Weighted>,
      op,
      context_of(call).lane,
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

#include "runtime/cuda/ops/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

constexpr int kWide = 512;   // threads per block for long rows
constexpr int kNarrow = 32;  // and for short rows
constexpr int64_t kShortRow = 1024;
// Columns are counted in 32 bits, which saves registers, and a thread looks one stride ahead.
constexpr int64_t kMaxClasses = (int64_t{1} << 31) - 1 - kWide * 8;

// Calls f(column, values) for the part of a row that one of Threads threads handles: single
// elements up to the first multiple of 16 bytes, then vectors, then single elements again, because
// rows of an odd length may begin anywhere.
template <int Threads, typename T, typename F>
__device__ __forceinline__ void each_in_row(const T* row, int32_t columns, F f) {
  constexpr int N = kVectorWidth<T>;
  const auto misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
  int32_t head = misaligned == 0 ? 0 : N - misaligned;
  if (head > columns) head = columns;
  const int32_t tail = head + (columns - head) / N * N;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto single = [&](int32_t column) {
    float value[1];
    load(row + column, value);
    f(column, value);
  };
  if (thread < head) single(thread);
  for (int32_t column = head + thread * N; column < tail; column += Threads * N) {
    float values[N];
    load(row + column, values);
    f(column, values);
  }
  if (tail + thread < columns) single(tail + thread);
}

// Running maximum and sum of exponentials of the elements that a thread has seen.
struct RunningSoftmax {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;              // of exp(x - max)
  float plain_sum = 0;        // of x
  int32_t first_largest = 0;  // column

  template <int N>
  __device__ __forceinline__ void add(int32_t column, const float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (x[i] > max) {  // a thread's columns ascend, so the first of equal ones stays
        sum *= expf(max - x[i]);
        max = x[i];
        first_largest = column + i;
      }
      sum += x[i] == max ? 1 : expf(x[i] - max);  // -infinity minus itself would be NaN
      plain_sum += x[i];
    }
  }
};

struct Min {
  template <typename T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return a < b ? a : b;
  }
};

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
    if constexpr (Backward) {
      for (int64_t c = threadIdx.x; c < op.stride; c += Threads) gradient[c] = round_to<T>(0);
    }
    return;
  }

  const auto classes = static_cast<int32_t>(op.classes);
  RunningSoftmax softmax;
  each_in_row<Threads>(
      x, classes, [&](int32_t column, auto& values) { softmax.add(column, values); });
  const float max = block_reduce<Max, Threads>(softmax.max);
  const float scaled = softmax.sum == 0 ? 0 : softmax.sum * expf(softmax.max - max);
  const float log_sum = max + logf(block_reduce<Sum, Threads>(scaled));
  const int32_t candidate =
      softmax.max == max ? softmax.first_largest : std::numeric_limits<int32_t>::max();
  const int32_t largest = block_reduce<Min, Threads>(candidate);
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
  const float other_logit = mixed ? to_float(x[other]) : 0;
  float smooth_loss = 0;
  if (each > 0) {
    float thread_sum = Weighted ? 0 : softmax.plain_sum;
    if constexpr (Weighted) {
      each_in_row<Threads>(x, classes, [&](int32_t column, auto& values) {
        constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
        for (int i = 0; i < N; ++i) thread_sum += op.weights[column + i] * values[i];
      });
    }
    smooth_loss = each * (weight_sum * log_sum - block_reduce<Sum, Threads>(thread_sum));
  }
  float larger = 0;  // number of logits above the target's, or equal and before it
  if constexpr (!Backward) {
    const float threshold = to_float(x[target]);
    each_in_row<Threads>(x, classes, [&](int32_t column, auto& values) {
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
    float loss = target_share * (log_sum - to_float(x[target])) + smooth_loss;
    if (mixed) loss += other_share * (log_sum - other_logit);
    results[row] = {
        loss, largest == target ? 1.0f : 0.0f, !Backward && larger < 5 ? 1.0f : 0.0f, weight};
  }
  if constexpr (Backward) {
    __syncthreads();  // all threads have read the targets' logits
    const float gradient_scale = lane->gradient_scale;
    each_in_row<Threads>(x, classes, [&](int32_t column, auto& values) {
      constexpr int N = sizeof(values) / sizeof(float);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float p = expf(values[i] - log_sum), smoothed = each;
        if constexpr (Weighted) {
          p *= target_share + each * weight_sum;
          smoothed *= op.weights[column + i];
        }
        const float share = column + i == target ? target_share + smoothed : smoothed;
        values[i] = (p - share) * gradient_scale;
      }
      store(values, gradient + column);
    });
    for (int64_t c = op.classes + threadIdx.x; c < op.stride; c += Threads)
      gradient[c] = round_to<T>(0);
    if (mixed) {
      __syncthreads();  // the loop has left out the second target
      if (threadIdx.x == 0) {
        const float p = expf(other_logit - log_sum);
        gradient[other] = round_to<T>((p - (other_share + each)) * gradient_scale);
      }
    }
  }
}

template <typename T, bool Backward, bool Weighted>
void start(const graph::SoftmaxCrossEntropy<T>& op, const graph::OpCall& call, RowLoss* results) {
  LOCKSTEP_REQUIRE(op.classes <= kMaxClasses);
  const bool is_short = op.classes <= kShortRow;
  launch(
      {blocks_for(op.rows, 1), static_cast<unsigned>(is_short ? kNarrow : kWide), stream_of(call)},
      is_short ? softmax_cross_entropy_kernel<T, kNarrow, Backward, Weighted>
               : softmax_cross_entropy_kernel<T, kWide, Backward, Weighted>,
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

// Class weights are passed to the device as kernel arguments, a chunk at a time, so a recorded
// graph holds them.
struct WeightChunk {
  static constexpr int64_t kMax = 512;
  float values[kMax];
};

__global__ void copy_weights_kernel(WeightChunk chunk, int64_t count, float* weights) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) weights[i] = chunk.values[i];
}

void copy_weights(const float* weights, int64_t classes, float* to, Stream stream) {
  constexpr int kThreads = 128;
  for (int64_t begin = 0; begin < classes; begin += WeightChunk::kMax) {
    const int64_t count = std::min(WeightChunk::kMax, classes - begin);
    WeightChunk chunk = {};
    std::copy_n(weights + begin, count, chunk.values);
    launch({blocks_for(count, kThreads), kThreads, stream},
           copy_weights_kernel,
           chunk,
           count,
           to + begin);
  }
}

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

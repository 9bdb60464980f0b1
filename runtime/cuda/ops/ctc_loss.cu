#include "runtime/graph/ops/ctc_loss.h"

#include <cmath>
#include <cstring>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;  // a block handles a sample, a thread every 128th state or class
constexpr float kNever = graph::CtcLoss<float>::kNever;

// log(e^a + e^b + e^c)
__device__ __forceinline__ float log_sum(float a, float b, float c) {
  const float largest = fmaxf(a, fmaxf(b, c));
  return largest + logf(expf(a - largest) + expf(b - largest) + expf(c - largest));
}

// One sample, in the words of ctc_loss.h. All threads of the block call all functions.
template <typename T>
class CtcSample {
 public:
  __device__ __forceinline__ CtcSample(const graph::CtcLoss<T>& op,
                                       const graph::CtcTarget& target,
                                       int64_t sample,
                                       float* memory)
      : op_(op),
        target_(target),
        logits_(op.logits + sample * op.frames * op.classes),
        layout_(op.memory()),
        memory_(memory + sample * layout_.floats()),
        repeats_(reinterpret_cast<int32_t*>(memory_ + layout_.repeats())),
        frames_(target_.frames()),
        states_(target_.states()) {
    // Paths never come from the unused states around a row.
    for (int64_t t = 0; t < layout_.kept; ++t) clear(memory_ + layout_.alpha(t));
    clear(memory_ + layout_.next(0));
    clear(memory_ + layout_.next(1));
    for (int64_t s = threadIdx.x; s < states_ + graph::CtcMemory::kPad; s += kThreads)
      skips()[s] = s < states_ && target_.can_skip_to(s) ? 0 : kNever;
    for (int64_t c = threadIdx.x; c < op.classes; c += kThreads) class_shares()[c] = 0;
    find_repeats();
    for (int64_t t = threadIdx.x / kWarp; t < frames_; t += kThreads / kWarp) sum_classes(t);
    __syncthreads();
  }

  // Computes alpha and returns the loss.
  __device__ __forceinline__ float forward() {
    float largest = 0;  // of the row of the frame before
    for (int64_t t = 0; t < frames_; ++t) {
      float* const now = memory_ + layout_.alpha(t);
      const float* const before = memory_ + layout_.alpha(t + layout_.kept - 1);
      float own = kNever;
      for (int64_t s = threadIdx.x; s < states_; s += kThreads) {
        float paths = s < 2 ? 0 : kNever;
        if (t > 0) paths = log_sum(before[s], before[s - 1], before[s - 2] + skips()[s]) - largest;
        now[s] = paths + log_p(t, s);
        own = fmaxf(own, now[s]);
      }
      offset_ += static_cast<double>(largest);
      largest = block_reduce<Max, kThreads>(own);
      if (threadIdx.x == 0) memory_[layout_.largest() + t] = largest;
    }
    __syncthreads();
    const float* const last = memory_ + layout_.alpha(frames_ - 1);
    const float a = last[states_ - 1], b = states_ > 1 ? last[states_ - 2] : kNever;
    log_p_ = offset_ + static_cast<double>(log_sum(a, b, kNever));
    return log_p_ < double{kNever} / 2 ? INFINITY : static_cast<float>(-log_p_);
  }

  // Computes beta from the last frame on, and with it the gradient. Follows forward().
  __device__ __forceinline__ void backward(T* gradient, float scale) {
    double after = 0;   // of beta
    float largest = 0;  // of the row of the frame behind
    for (int64_t t = frames_ - 1; t >= 0; --t) {
      const float* const alpha = memory_ + layout_.alpha(t);
      const float* const behind = memory_ + layout_.next(t + 1);
      float* const now = memory_ + layout_.next(t);
      after += static_cast<double>(largest);
      const auto constant = static_cast<float>(offset_ + after - log_p_);
      float own = kNever, blanks = 0;
      for (int64_t s = threadIdx.x; s < states_; s += kThreads) {
        float beta = s + 2 < states_ ? kNever : 0;
        if (t < frames_ - 1)
          beta = log_sum(behind[s], behind[s + 1], behind[s + 2] + skips()[s + 2]) - largest;
        const float share = expf(alpha[s] + beta + constant);
        shares()[s] = share;
        if (s % 2 == 0) blanks += share;
        now[s] = beta + log_p(t, s);
        own = fmaxf(own, now[s]);
      }
      largest = block_reduce<Max, kThreads>(own);
      blanks = block_reduce<Sum, kThreads>(blanks);
      if (t > 0) offset_ -= static_cast<double>(memory_[layout_.largest() + t - 1]);
      sum_shares(blanks);
      __syncthreads();
      const float log_sum = memory_[layout_.log_sums() + t];
      for (int64_t c = threadIdx.x; c < op_.classes; c += kThreads) {
        const float p = expf(to_float(logits_[t * op_.classes + c]) - log_sum);
        gradient[t * op_.classes + c] = round_to<T>((p - class_shares()[c]) * scale);
      }
      __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ float* skips() const { return memory_ + layout_.skips(); }
  __device__ __forceinline__ float* shares() const { return memory_ + layout_.shares(); }
  __device__ __forceinline__ float* class_shares() const {
    return memory_ + layout_.class_shares();
  }

  __device__ __forceinline__ void clear(float* row) const {
    if (threadIdx.x >= graph::CtcMemory::kPad) return;
    row[-1 - static_cast<int64_t>(threadIdx.x)] = kNever;
    row[states_ + threadIdx.x] = kNever;
  }

  // The logarithm of the sum of a frame's exponentials, by a warp.
  __device__ __forceinline__ void sum_classes(int64_t t) const {
    const T* const x = logits_ + t * op_.classes;
    const int lane = threadIdx.x % kWarp;
    float largest = -INFINITY, sum = 0;
    for (int64_t c = lane; c < op_.classes; c += kWarp) largest = fmaxf(largest, to_float(x[c]));
    largest = warp_reduce<Max>(largest);
    for (int64_t c = lane; c < op_.classes; c += kWarp) sum += expf(to_float(x[c]) - largest);
    sum = warp_reduce<Sum>(sum);
    if (lane == 0) memory_[layout_.log_sums() + t] = largest + logf(sum);
  }

  __device__ __forceinline__ float log_p(int64_t t, int64_t s) const {
    const float x = to_float(logits_[t * op_.classes + target_.class_of(s)]);
    const float log_p = x - memory_[layout_.log_sums() + t];
    return log_p < kNever ? kNever : log_p;  // NaN stays NaN
  }

  // For each symbol: the next index with the same one, or -1. If an earlier index has it too, -3
  // minus that, which is below -1.
  __device__ __forceinline__ void find_repeats() const {
    const int64_t symbols = target_.symbols();
    for (int64_t k = threadIdx.x; k < symbols; k += kThreads) {
      const int32_t symbol = target_.symbol(k);
      int64_t first = 0, next = k + 1;
      while (target_.symbol(first) != symbol) ++first;
      while (next < symbols && target_.symbol(next) != symbol) ++next;
      const auto found = static_cast<int32_t>(next < symbols ? next : -1);
      repeats_[k] = first == k ? found : -3 - found;
    }
  }

  // Adds the shares of the states of each class, in their order.
  __device__ __forceinline__ void sum_shares(float blanks) const {
    if (threadIdx.x == 0) class_shares()[target_.blank] = blanks;
    for (int64_t k = threadIdx.x; k < target_.symbols(); k += kThreads) {
      if (repeats_[k] < -1) continue;  // an earlier one adds it
      float sum = shares()[2 * k + 1];
      for (int64_t other = repeats_[k]; other >= 0;) {
        sum += shares()[2 * other + 1];
        other = -3 - repeats_[other];
      }
      class_shares()[target_.symbol(k)] = sum;
    }
  }

  const graph::CtcLoss<T>& op_;
  const graph::CtcTarget target_;
  const T* const logits_;  // (frames, classes)
  const graph::CtcMemory layout_;
  float* const memory_;
  int32_t* const repeats_;
  const int64_t frames_, states_;
  double offset_ = 0;  // what was subtracted from the row of alpha
  double log_p_ = 0;
};

template <bool Backward, typename T>
__global__ void __launch_bounds__(kThreads) ctc_loss_kernel(graph::CtcLoss<T> op,
                                                            const graph::LaneContext* lane,
                                                            float* memory,
                                                            RowLoss* results) {
  const int64_t n = blockIdx.x, elements = op.frames * op.classes;
  const graph::CtcTarget target{op.targets + n * op.record, op.blank};
  const int64_t counted = n < lane->valid_rows && target.counts() ? target.frames() : 0;
  if (counted == 0) {
    if (threadIdx.x == 0) results[n] = {0, kNotCounted};
  } else {
    CtcSample<T> sample(op, target, n, memory);
    const float loss = sample.forward();
    if (threadIdx.x == 0) results[n] = {loss, 0};
    if constexpr (Backward) sample.backward(op.gradient + n * elements, lane->gradient_scale);
  }
  if constexpr (Backward) {
    for (int64_t i = counted * op.classes + threadIdx.x; i < elements; i += kThreads)
      op.gradient[n * elements + i] = round_to<T>(0.0f);
  }
}

void run(const graph::OpCall& call) {
  by_type<graph::CtcLoss>(call, [&]<typename T>(const auto& op) {
    auto* const memory = call.workspace<float>();
    auto* const results = reinterpret_cast<RowLoss*>(call.workspace<std::byte>() +
                                                     aligned_bytes(op.workspace_bytes()));
    launch({static_cast<unsigned>(op.samples), kThreads, stream_of(call)},
           op.gradient != nullptr ? ctc_loss_kernel<true, T> : ctc_loss_kernel<false, T>,
           op,
           context_of(call).lane,
           memory,
           results);
    sum_row_losses(results, op.samples, op.statistics, stream_of(call));
  });
}

constexpr exec::Implementation kImplementations[] = {
    exec::row<run, ctc_loss_workspace>(graph::OpKind::kCtcLoss, "native")};

}  // namespace

constinit const exec::Implementations kCudaCtcLoss = kImplementations;

}  // namespace lockstep::cuda

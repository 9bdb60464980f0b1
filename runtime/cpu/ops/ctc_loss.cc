#include "runtime/graph/ops/ctc_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/ctc_loss.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

using Ctc = graph::CtcLoss<float>;

// log(e^a + e^b + e^c); NaN stays NaN.
HWY_INLINE Vec log_sum(Vec a, Vec b, Vec c) {
  const Vec largest = hn::Max(a, hn::Max(b, c));
  const Vec sum = hn::Add(exp(hn::Sub(a, largest)),
                          hn::Add(exp(hn::Sub(b, largest)), exp(hn::Sub(c, largest))));
  // Log turns NaN into a number.
  return hn::IfThenElse(hn::IsNaN(sum), sum, hn::Add(largest, hn::Log(F32(), sum)));
}

HWY_INLINE float exponential_sum(const float* x, int64_t classes, float largest) {
  RowSum sum;
  for_each_row_vector(classes, [&](size_t i, auto part, auto access) HWY_ATTR {
    sum.add(part, access.keep(exp(hn::Sub(access.load(x + i), set(largest)))));
  });
  return sum.total();
}

// One sample, in the words of ctc_loss.h.
class CtcSample {
 public:
  HWY_INLINE CtcSample(const Ctc& op, const graph::CtcTarget& target, int64_t sample, float* memory)
      : op_(op),
        target_(target),
        logits_(op.logits + sample * op.frames * op.classes),
        layout_(op.memory()),
        memory_(memory),
        frames_(target_.frames()),
        states_(target_.states()) {
    // Paths never come from the unused states around a row.
    for (int64_t t = 0; t < layout_.kept; ++t) clear(alpha(t));
    clear(next(0));
    clear(next(1));
    clear(skips());
    for (int64_t s = 2; s < states_; ++s)
      if (target_.can_skip_to(s)) skips()[s] = 0;
    for (int64_t t = 0; t < frames_; ++t) {
      const float* const x = logits_ + t * op.classes;
      const float largest = row_max(x, op.classes);
      const double sum = exponential_sum(x, op.classes, largest);
      log_sums()[t] = static_cast<float>(static_cast<double>(largest) + std::log(sum));
    }
  }

  // Computes alpha and returns the loss.
  HWY_INLINE double forward() {
    for (int64_t t = 0; t < frames_; ++t) {
      float* const now = alpha(t);
      gather(t, now);
      if (t == 0) {
        for (int64_t s = 2; s < states_; ++s) now[s] = Ctc::kNever;
      } else {
        add_paths(alpha(t - 1), alpha_largest()[t - 1], now);
        offset_ += static_cast<double>(alpha_largest()[t - 1]);
      }
      alpha_largest()[t] = row_max(now, states_);
    }
    const float* const last = alpha(frames_ - 1);
    const auto a = static_cast<double>(last[states_ - 1]);
    const auto b = static_cast<double>(states_ > 1 ? last[states_ - 2] : Ctc::kNever);
    const double best = std::max(a, b);
    log_p_ = offset_ + best + std::log(std::exp(a - best) + std::exp(b - best));
    return log_p_ < double{Ctc::kNever} / 2 ? std::numeric_limits<double>::infinity() : -log_p_;
  }

  // Computes beta from the last frame on, and with it the gradient. Follows forward().
  HWY_INLINE void backward(float* gradient, float scale) {
    float* const classes = memory_ + layout_.class_shares();
    std::fill_n(classes, op_.classes, 0.0f);
    double after = 0;      // of beta
    float largest = 0.0f;  // of the row of the frame behind
    for (int64_t t = frames_ - 1; t >= 0; --t) {
      float* const now = next(t);
      gather(t, now);
      after += static_cast<double>(largest);
      const auto constant = static_cast<float>(offset_ + after - log_p_);
      if (t == frames_ - 1)
        end_paths(now, alpha(t), constant);
      else
        continue_paths(next(t + 1), largest, now, alpha(t), constant);
      largest = row_max(now, states_);
      if (t > 0) offset_ -= static_cast<double>(alpha_largest()[t - 1]);
      for (int64_t s = 0; s < states_; ++s) classes[target_.class_of(s)] = 0;
      for (int64_t s = 0; s < states_; ++s) classes[target_.class_of(s)] += shares()[s];
      const Vec log_sum = set(log_sums()[t]), factor = set(scale);
      const float* const x = logits_ + t * op_.classes;
      float* const d_x = gradient + t * op_.classes;  // may be x
      for_each_vector(op_.classes, [&](size_t c, auto access) HWY_ATTR {
        const Vec p = exp(hn::Sub(access.load(x + c), log_sum));
        access.store(hn::Mul(hn::Sub(p, access.load(classes + c)), factor), d_x + c);
      });
    }
  }

 private:
  float* alpha(int64_t t) const { return memory_ + layout_.alpha(t); }
  float* next(int64_t t) const { return memory_ + layout_.next(t); }
  float* shares() const { return memory_ + layout_.shares(); }
  float* skips() const { return memory_ + layout_.skips(); }
  float* log_sums() const { return memory_ + layout_.log_sums(); }
  float* alpha_largest() const { return memory_ + layout_.largest(); }

  void clear(float* row) const {
    std::fill_n(row - graph::CtcMemory::kPad, layout_.row, Ctc::kNever);
  }

  // row = log p of each state's class.
  HWY_INLINE void gather(int64_t t, float* row) const {
    const float* const x = logits_ + t * op_.classes;
    for (int64_t s = 0; s < states_; ++s) row[s] = x[target_.class_of(s)];
    const Vec log_sum = set(log_sums()[t]);
    for_each_vector(states_, [&](size_t s, auto access) HWY_ATTR {
      access.store(at_least(Ctc::kNever, hn::Sub(access.load(row + s), log_sum)), row + s);
    });
  }

  HWY_INLINE void add_paths(const float* before, float largest, float* now) const {
    const float* const skip = skips();
    for_each_vector(states_, [&](size_t s, auto access) HWY_ATTR {
      const Vec stay = access.load(before + s), step = access.load(before + s - 1);
      const Vec jump = hn::Add(access.load(before + s - 2), access.load(skip + s));
      const Vec sum = hn::Sub(log_sum(stay, step, jump), set(largest));
      access.store(hn::Add(access.load(now + s), sum), now + s);
    });
  }

  // The next two compute beta of a frame: the shares of paths, and in `now`, which has log p, the
  // sum of both. At the last frame paths are in one of the last two states.
  HWY_INLINE void end_paths(float* now, const float* alpha, float constant) const {
    float* const beta = shares();
    for (int64_t s = 0; s < states_; ++s) beta[s] = s + 2 < states_ ? Ctc::kNever : 0;
    for_each_vector(states_, [&](size_t s, auto access) HWY_ATTR {
      add_beta(access, s, access.load(beta + s), now, alpha, constant);
    });
  }

  HWY_INLINE void continue_paths(
      const float* behind, float largest, float* now, const float* alpha, float constant) const {
    const float* const skip = skips();
    for_each_vector(states_, [&](size_t s, auto access) HWY_ATTR {
      const Vec stay = access.load(behind + s), step = access.load(behind + s + 1);
      const Vec jump = hn::Add(access.load(behind + s + 2), access.load(skip + s + 2));
      const Vec beta = hn::Sub(log_sum(stay, step, jump), set(largest));
      add_beta(access, s, beta, now, alpha, constant);
    });
  }
  template <typename Access>
  HWY_INLINE void add_beta(
      Access access, size_t s, Vec beta, float* now, const float* alpha, float constant) const {
    const Vec share = exp(hn::Add(hn::Add(access.load(alpha + s), beta), set(constant)));
    access.store(share, shares() + s);
    access.store(hn::Add(access.load(now + s), beta), now + s);
  }

  const Ctc& op_;
  const graph::CtcTarget target_;
  const float* const logits_;  // (frames, classes)
  const graph::CtcMemory layout_;
  float* const memory_;
  const int64_t frames_, states_;
  double offset_ = 0;  // what was subtracted from the row of alpha
  double log_p_ = 0;
};

void ctc_kernel(const Ctc& op, float* memory, LossRow* results, int64_t begin, int64_t end) {
  const graph::LaneContext& lane = op.call.lane();
  for (int64_t n = begin; n < end; ++n) {
    const graph::CtcTarget target{op.targets + n * op.record, op.blank};
    const int64_t counted = n < lane.valid_rows && target.counts() ? target.frames() : 0;
    results[n] = {};
    float* const gradient =
        op.gradient == nullptr ? nullptr : op.gradient + n * op.frames * op.classes;
    if (counted > 0) {
      CtcSample sample(op, target, n, memory + n * op.memory().floats());
      results[n] = {.loss = sample.forward(), .correct = 0, .counted = 1};
      if (gradient != nullptr) sample.backward(gradient, lane.gradient_scale);
    }
    if (gradient != nullptr)
      std::fill_n(gradient + counted * op.classes, (op.frames - counted) * op.classes, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(ctc_kernel);

namespace {

size_t workspace_bytes(const graph::CtcLoss<float>& op) {
  return loss_workspace_bytes(op.samples) + op.workspace_bytes();
}

void run(const graph::CtcLoss<float>& op) {
  auto* const results = op.call.workspace<LossRow>();
  auto* const memory = reinterpret_cast<float*>(results + op.samples);
  const int64_t work = op.frames * (op.classes + 8 * op.memory().row);
  in_parallel(op.samples, grain_rows(work), HWY_DYNAMIC_DISPATCH(ctc_kernel), op, memory, results);
  sum_loss_rows(results, op.samples, op.statistics);
}

constexpr exec::Implementation kRows[] = {
    row<run, workspace_bytes>(graph::OpKind::kCtcLoss, "simd")};

}  // namespace

constinit const exec::Implementations kCpuCtcLoss = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

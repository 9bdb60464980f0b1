// The softmax of attention, with its mask, dropout and gradient (see attention.cc). Compiled once
// per instruction set: see simd-inl.h.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_SOFTMAX_INL_H
#undef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_SOFTMAX_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_SOFTMAX_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/ops/attention_blocks-inl.h"
#include "runtime/cpu/ops/attention_mask-inl.h"
#include "runtime/cpu/philox-inl.h"
#include "runtime/cpu/simd-inl.h"
#include "runtime/graph/ops/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Draws the factors of dropout; the same for all heads.
struct Draw {
  Draw(const graph::AttentionDropout& dropout, const graph::LaneContext& lane)
      : stream{lane.seed, lane.step, lane.lane, dropout.purpose},
        keys(lane.seed),
        threshold(graph::dropout_threshold(dropout.probability)),
        factor(graph::dropout_factor(dropout.probability)) {}

  RngStream stream;
  RoundKeys keys;
  uint32_t threshold;
  float factor;
};

// Calls body(lane) for each vector of queries of the part.
template <typename Body>
HWY_INLINE void for_each_query_vector(const AttentionPart& part, Body&& body) {
  for (int64_t lane = part.lane; lane < part.lane + part.lanes; lane += kVecLanes) body(lane);
}

// Sets the scores of hidden keys to -infinity.
HWY_INLINE void hide_keys(const AttentionMask& mask, const AttentionPart& part, float* scores) {
  for (int64_t key = 0; key < part.keys.size(); ++key) {
    float* const row = scores + key * kBlock;
    for_each_query_vector(part, [&](int64_t lane) HWY_ATTR {
      const Vec s = hn::Load(F32(), row + lane);
      const auto hidden = mask.hidden(lane, part.keys.begin + key);
      hn::Store(hn::IfThenElse(hidden, set(RowMax::kNone), s), F32(), row + lane);
    });
  }
}

// Writes the dropout factors of a block of keys to work.kept.
template <typename T>
HWY_NOINLINE void draw_kept(const Draw& draw,
                            const AttentionHead<T>& head,
                            Range keys,
                            Range queries,
                            AttentionWorker& work) {
  for (int64_t key = keys.begin; key < keys.end; ++key)
    dropout_factors(draw.stream,
                    draw.keys,
                    graph::AttentionDropout::word(head.time, head.number, key, queries.begin),
                    queries.size(),
                    draw.threshold,
                    draw.factor,
                    work.kept + (key - keys.begin) * kBlock);
}

// Multiplies `values` (keys, queries) by work.kept.
HWY_INLINE void multiply_by_kept(const AttentionPart& part,
                                 const AttentionWorker& work,
                                 float* values) {
  const F32 d;
  for (int64_t key = 0; key < part.keys.size(); ++key) {
    const float* const kept = work.kept + key * kBlock;
    float* const row = values + key * kBlock;
    for_each_query_vector(part, [&](int64_t lane) HWY_ATTR {
      hn::Store(hn::Mul(hn::Load(d, row + lane), hn::Load(d, kept + lane)), d, row + lane);
    });
  }
}

// Initialises maximum, total and o^T for queries that have seen no key.
HWY_INLINE void begin_softmax(int64_t head_size, AttentionWorker& work) {
  std::fill_n(work.maximum, kBlock, RowMax::kNone);
  std::fill_n(work.total, kBlock, 0.0f);
  std::fill_n(work.sums, head_size * kBlock, 0.0f);
}

// Replaces the scores of a part by p and updates maximum, total and o^T. `sparse`: a query may have
// seen no key yet, and then has the maximum -infinity, which is not subtracted.
template <typename T>
HWY_INLINE void update_softmax(const AttentionHead<T>& head,
                               const AttentionPart& part,
                               bool first,
                               bool sparse,
                               AttentionWorker& work) {
  const F32 d;
  const Vec scale = set(head.scale);
  for_each_query_vector(part, [&](int64_t lane) HWY_ATTR {
    const Vec before = first ? set(RowMax::kNone) : hn::Load(d, work.maximum + lane);
    Vec maximum = before;
    for (int64_t key = 0; key < part.keys.size(); ++key) {
      maximum = hn::Max(hn::Load(d, work.scores + key * kBlock + lane), maximum);
    }
    const Vec origin =
        sparse ? hn::IfThenZeroElse(hn::Eq(maximum, set(RowMax::kNone)), maximum) : maximum;
    Vec sum = hn::Zero(d);
    for (int64_t key = 0; key < part.keys.size(); ++key) {
      float* const s = work.scores + key * kBlock + lane;
      const Vec p = exp(hn::Mul(scale, hn::Sub(hn::Load(d, s), origin)));
      hn::Store(p, d, s);
      sum = hn::Add(sum, p);
    }
    hn::Store(maximum, d, work.maximum + lane);
    if (!first) {
      const Vec shrink = exp(hn::Mul(scale, hn::Sub(before, origin)));
      sum = hn::MulAdd(hn::Load(d, work.total + lane), shrink, sum);
      if (!hn::AllTrue(d, hn::Eq(before, maximum))) {  // otherwise shrink is exactly 1
        for (int64_t i = 0; i < head.size; ++i) {
          float* const o = work.sums + i * kBlock + lane;
          hn::Store(hn::Mul(hn::Load(d, o), shrink), d, o);
        }
      }
    }
    hn::Store(sum, d, work.total + lane);
  });
}

// Turns the totals of queries into the factors of their sums, and their maxima into log_sum_exp.
// Both are 0 for a query that has seen no key.
HWY_INLINE void end_softmax(float scale, Range queries, AttentionWorker& work) {
  const F32 d;
  for_each_query_vector({0, padded(queries), {}}, [&](int64_t lane) HWY_ATTR {
    const Vec total = hn::Load(d, work.total + lane);
    const auto saw_nothing = hn::Eq(total, hn::Zero(d));
    const Vec log_sum = hn::MulAdd(set(scale), hn::Load(d, work.maximum + lane), hn::Log(d, total));
    // Log turns NaN into a number; total - total keeps it.
    const Vec kept = hn::Add(log_sum, hn::Sub(total, total));
    hn::Store(hn::IfThenZeroElse(saw_nothing, kept), d, work.maximum + lane);
    hn::Store(hn::IfThenZeroElse(saw_nothing, hn::Div(set(1.0f), total)), d, work.total + lane);
  });
}

// Turns scores into p^T, and d_scores from the gradient of p^T into that of s^T.
HWY_INLINE void softmax_backward(float head_scale,
                                 const AttentionMask& mask,
                                 bool hides,
                                 const AttentionPart& part,
                                 AttentionWorker& work) {
  const F32 d;
  const Vec scale = set(head_scale);
  for_each_query_vector(part, [&](int64_t lane) HWY_ATTR {
    const Vec log_sum = hn::Load(d, work.maximum + lane);
    const Vec delta = hn::Load(d, work.delta + lane);
    for (int64_t key = 0; key < part.keys.size(); ++key) {
      float* const s = work.scores + key * kBlock + lane;
      float* const d_s = work.d_scores + key * kBlock + lane;
      Vec p = exp(hn::MulSub(scale, hn::Load(d, s), log_sum));
      Vec gradient = hn::Mul(hn::Mul(p, hn::Sub(hn::Load(d, d_s), delta)), scale);
      if (hides) {
        const auto hidden = mask.hidden(lane, part.keys.begin + key);
        p = hn::IfThenZeroElse(hidden, p);
        gradient = hn::IfThenZeroElse(hidden, gradient);
      }
      hn::Store(p, d, s);
      hn::Store(gradient, d, d_s);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_SOFTMAX_INL_H

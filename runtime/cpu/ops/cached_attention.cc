#include "runtime/graph/ops/cached_attention.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/cached_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

// A unit of work is a token and a head of k and v, with all heads of q that share it. A head's
// scores are vectors along the keys, because keys are stored transposed; a token's output is a
// vector along D. A unit reads its part of the KV cache once for each head of q, from the second
// time on out of the CPU's caches. Numbers of bfloat16 are widened as they are read; scores and
// sums are floats.

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Stores the key and the value of a token and a head in the KV cache.
template <typename T>
HWY_INLINE void store_token(const graph::CachedAttention<T>& op,
                            int64_t b,
                            int64_t s,
                            int64_t head) {
  const int64_t position = op.position(b, s), size = op.head_size;
  if (position < 0) return;
  const T* const k = op.qkv + (b * op.tokens + s) * op.packed_width() + (op.heads + head) * size;
  T* const keys = op.keys(b, head) + position;
  for (int64_t d = 0; d < size; ++d) keys[d * op.room] = k[d];
  std::copy_n(k + op.kv_heads * size, size, op.values(b, head) + position * size);
}

// scores (count) = scale q K, K (D, count) with row stride `stride`; each score is a chain over D.
template <typename T>
HWY_INLINE void score_keys(const T* q,
                           const T* keys,
                           int64_t stride,
                           int64_t size,
                           size_t count,
                           float scale,
                           float* scores) {
  constexpr size_t kAtOnce = 4;  // vectors, so that chains of sums overlap
  size_t i = 0;
  for (; i + kAtOnce * kVecLanes <= count; i += kAtOnce * kVecLanes) {
    Vec sum[kAtOnce];
    for (Vec& part : sum) part = hn::Zero(F32());
    for (int64_t d = 0; d < size; ++d) {
      const Vec factor = set(to_float(q[d]));
      const T* const row = keys + d * stride + i;
      for (size_t part = 0; part < kAtOnce; ++part)
        sum[part] = hn::MulAdd(factor, FullVector{}.load(row + part * kVecLanes), sum[part]);
    }
    for (size_t part = 0; part < kAtOnce; ++part)
      hn::StoreU(hn::Mul(sum[part], set(scale)), F32(), scores + i + part * kVecLanes);
  }
  for_each_vector(count - i, [&](size_t at, auto access) HWY_ATTR {
    Vec sum = hn::Zero(F32());
    for (int64_t d = 0; d < size; ++d)
      sum = hn::MulAdd(set(to_float(q[d])), access.load(keys + d * stride + i + at), sum);
    access.store(hn::Mul(sum, set(scale)), scores + i + at);
  });
}

// Replaces the scores by e^(score - largest) and returns their sum.
HWY_INLINE float exponentiate(float* scores, size_t count) {
  const Vec largest = set(row_max(scores, count));
  RowSum sum;
  for_each_row_vector(count, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec weight = exp(hn::Sub(access.load(scores + i), largest));
    access.store(weight, scores + i);
    sum.add(part, access.keep(weight));
  });
  return sum.total();
}

// y (D) = the sum over keys of weight v, divided by `total`.
template <typename T>
HWY_INLINE void mix_values(
    const float* weights, const T* values, int64_t size, size_t count, float total, T* y) {
  const Vec share = set(1 / total);
  const auto d = static_cast<size_t>(size);
  constexpr size_t kAtOnce = 4;
  size_t i = 0;
  for (; i + kAtOnce * kVecLanes <= d; i += kAtOnce * kVecLanes) {
    Vec sum[kAtOnce];
    for (Vec& part : sum) part = hn::Zero(F32());
    for (size_t key = 0; key < count; ++key) {
      const Vec weight = set(weights[key]);
      const T* const v = values + key * d + i;
      for (size_t part = 0; part < kAtOnce; ++part)
        sum[part] = hn::MulAdd(weight, FullVector{}.load(v + part * kVecLanes), sum[part]);
    }
    for (size_t part = 0; part < kAtOnce; ++part)
      FullVector{}.store(hn::Mul(sum[part], share), y + i + part * kVecLanes);
  }
  for_each_vector(d - i, [&](size_t at, auto access) HWY_ATTR {
    Vec sum = hn::Zero(F32());
    for (size_t key = 0; key < count; ++key)
      sum = hn::MulAdd(set(weights[key]), access.load(values + key * d + i + at), sum);
    access.store(hn::Mul(sum, share), y + i + at);
  });
}

// Computes all heads of q of a token that share a head of k and v.
template <typename T>
HWY_INLINE void attend(
    const graph::CachedAttention<T>& op, int64_t b, int64_t s, int64_t head, float* scores) {
  const int64_t position = op.position(b, s), size = op.head_size, row = b * op.tokens + s;
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (int64_t h = head * op.group(); h < (head + 1) * op.group(); ++h) {
    T* const y = op.y + (row * op.heads + h) * size;
    if (position < 0) {
      std::fill_n(y, size, T{});
      continue;
    }
    const int64_t first = op.first_key(position);
    const auto count = static_cast<size_t>(position + 1 - first);
    const T* const q = op.qkv + row * op.packed_width() + h * size;
    score_keys(q, op.keys(b, head) + first, op.room, size, count, scale, scores);
    const float total = exponentiate(scores, count);
    mix_values(scores, op.values(b, head) + first * size, size, count, total, y);
  }
}

// Floats between the scores of two workers.
template <typename T>
int64_t score_stride(const graph::CachedAttention<T>& op) {
  return (op.room + 15) / 16 * 16;
}

template <typename T>
HWY_INLINE void attend_all(const graph::CachedAttention<T>& op) {
  if (op.new_cache != op.cache)
    parallel_for(op.cache_elements(), kGrainElements, [&](int64_t begin, int64_t end) {
      std::copy(op.cache + begin, op.cache + end, op.new_cache + begin);
    });
  const int64_t units = op.batch * op.tokens * op.kv_heads;
  const auto each_unit = [&](int64_t begin, int64_t end, auto body) HWY_ATTR {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / op.kv_heads;
      body(row / op.tokens, row % op.tokens, unit % op.kv_heads);
    }
  };
  parallel_for(units, grain_rows(op.head_size), [&](int64_t begin, int64_t end) {
    each_unit(begin, end, [&](int64_t b, int64_t s, int64_t head) { store_token(op, b, s, head); });
  });
  int64_t keys = 0;  // max keys that a sample's last token may see
  for (int64_t b = 0; b < op.batch; ++b) keys = std::max(keys, op.position(b, op.tokens - 1) + 1);
  const int64_t workers =
      threads_worth(compute_threads(), 2 * units * op.group() * keys * op.head_size);
  parallel_for(workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      float* const scores = reinterpret_cast<float*>(op.workspace) + worker * score_stride(op);
      each_unit(units * worker / workers,
                units * (worker + 1) / workers,
                [&](int64_t b, int64_t s, int64_t head) { attend(op, b, s, head, scores); });
    }
  });
}

void cached_attention_kernel(AnyStored<graph::CachedAttention> stored) {
  stored.with([](const auto& op) HWY_ATTR { attend_all(op); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(cached_attention_kernel);

namespace {

size_t workspace_bytes(const graph::CachedAttention<float>& op) {
  return static_cast<size_t>(compute_threads() * ((op.room + 15) / 16 * 16)) * sizeof(float);
}

template <typename T>
void run(const graph::CachedAttention<T>& op) {
  HWY_DYNAMIC_DISPATCH(cached_attention_kernel)(op);
}

constexpr exec::Implementation kRows[] = {native_row<run<float>, run<BFloat16>, workspace_bytes>(
    graph::OpKind::kCachedAttention, "keys along vectors")};

}  // namespace

constinit const exec::Implementations kCpuCachedAttention = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

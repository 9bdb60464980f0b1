#include "runtime/cuda/flat/tree_sum.h"

#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/cuda/flat_copies.h"

namespace lockstep::cuda {
namespace {

// Arrays of T whose values are rounded to Wire; float stands for no rounding.
template <typename T, typename Wire, int Count>
struct Terms {
  const T* at[Count];
};

// Rounds to Wire and back.
template <typename Wire, int N>
__device__ __forceinline__ void round_all(float (&x)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] = to_float(round_to<Wire>(x[k]));
}

// Sums terms First .. First + Count - 1, at element i.
template <int First, int Count, int N, typename T, typename Wire, int All>
__device__ __forceinline__ void sum_subtree(const Terms<T, Wire, All>& terms,
                                            int64_t i,
                                            float (&sum)[N]) {
  if constexpr (Count == 1) {
    load(terms.at[First] + i, sum);
  } else {
    float right[N];
    sum_subtree<First, Count / 2>(terms, i, sum);
    sum_subtree<First + Count / 2, Count / 2>(terms, i, right);
    // Terms that have been transferred are rounded already, but sums of them are not.
    if constexpr (Count > 2 || std::is_same_v<T, float>) {
      round_all<Wire>(sum);
      round_all<Wire>(right);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += right[k];
  }
}

template <typename T, typename Wire, int Count>
struct TreeSum {
  Terms<T, Wire, Count> terms;
  bool round_sum;
  float* out;
  template <typename Width>
  __device__ void operator()(int64_t i, Width) const {
    float sum[Width::value];
    sum_subtree<0, Count>(terms, i, sum);
    if (round_sum) round_all<Wire>(sum);
    store(sum, out + i);
  }
};

// Adds the residual to a sum and rounds it; the rest is the next residual.
__device__ __forceinline__ float keep_rest(float sum, uint16_t* residual) {
  auto* const kept = reinterpret_cast<BFloat16*>(residual);
  sum += to_float(*kept);
  const float rounded = to_float(round_to<BFloat16>(sum));
  const BFloat16 rest = round_to<BFloat16>(sum - rounded);
  *kept = fabsf(to_float(rest)) < INFINITY ? rest : round_to<BFloat16>(0.0f);
  return rounded;
}

// Sums terms First .. First + Count - 1, at element i, with error feedback: every sum, or a single
// term, adds its residual before it is rounded.
template <int First, int Count, typename T, int All>
__device__ __forceinline__ float feedback_sum(const Terms<T, BFloat16, All>& terms,
                                              const collectives::ErrorFeedbackResiduals& residuals,
                                              int64_t i) {
  float corrected;
  if constexpr (Count == 1) {
    corrected = to_float(terms.at[First][i]);
    if constexpr (All > 1) return corrected;
  } else {
    corrected = feedback_sum<First, Count / 2>(terms, residuals, i);
    corrected += feedback_sum<First + Count / 2, Count / 2>(terms, residuals, i);
  }
  return keep_rest(corrected, residuals.of(All > 1 ? First + Count / 2 : 1) + i);
}

template <typename T, int Count>
struct KeepingSum {
  Terms<T, BFloat16, Count> terms;
  collectives::ErrorFeedbackResiduals residuals;
  float* out;
  template <typename Width>
  __device__ void operator()(int64_t i, Width) const {
    out[i] = feedback_sum<0, Count>(terms, residuals, i);
  }
};

// Adds the terms before number `chained` to a sum, one after the other, the last of them first.
template <typename Wire, int N, typename T>
__device__ __forceinline__ void add_chained(const T* const* at,
                                            int chained,
                                            int64_t i,
                                            float (&sum)[N]) {
  for (int k = chained - 1; k >= 0; --k) {
    float left[N];
    load(at[k] + i, left);
    round_all<Wire>(left);
    round_all<Wire>(sum);
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] = left[e] + sum[e];
  }
}

// A balanced tree of the last Count terms, to which those before them are added.
template <typename Wire, int Count>
struct ChainedTreeSum {
  Terms<float, Wire, Count> last;
  const float* at[kMaxTerms];  // the others
  int chained;
  bool round_sum;
  float* out;
  template <typename Width>
  __device__ void operator()(int64_t i, Width) const {
    float sum[Width::value];
    sum_subtree<0, Count>(last, i, sum);
    add_chained<Wire>(at, chained, i, sum);
    if (round_sum) round_all<Wire>(sum);
    store(sum, out + i);
  }
};

// Terms that join in any tree. Those before number `chained` are added to the sum of the others.
template <typename T>
struct JoinedTerms {
  const T* at[kMaxTerms];
  unsigned char joins[kMaxTerms];
  int count, chained;
};

// The sums that wait for a right one, in registers: all indices are known to the compiler.
template <int N>
struct OpenSums {
  static constexpr int kMax = 7;  // of kMaxTerms
  float values[kMax][N];
  int first[kMax];
  bool single[kMax];

  __device__ __forceinline__ void put(int place, const float (&x)[N], int term, bool alone) {
#pragma unroll
    for (int p = 0; p < kMax; ++p) {
      if (p != place) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) values[p][k] = x[k];
      first[p] = term;
      single[p] = alone;
    }
  }
  __device__ __forceinline__ void get(int place, float (&x)[N], int& term, bool& alone) const {
#pragma unroll
    for (int p = 0; p < kMax; ++p) {
      if (p != place) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = values[p][k];
      term = first[p];
      alone = single[p];
    }
  }
};

// join(left, right, first term of the right, whether both are single terms): left = their sum.
template <int N, typename T, typename Join>
__device__ __forceinline__ void joined_sum(const JoinedTerms<T>& terms,
                                           int64_t i,
                                           float (&sum)[N],
                                           Join join) {
  OpenSums<N> open;
  int before = 0, first = terms.chained;
  bool single = true;
  load(terms.at[first] + i, sum);
  for (int k = first + 1; k < terms.count; ++k) {
    open.put(before++, sum, first, single);
    load(terms.at[k] + i, sum);
    first = k;
    single = true;
    for (int joins = terms.joins[k]; joins > 0; --joins) {
      float left[N];
      int left_first = 0;
      bool left_single = false;
      open.get(--before, left, left_first, left_single);
      join(left, sum, first, single && left_single);
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] = left[e];
      first = left_first;
      single = false;
    }
  }
}

template <typename T, typename Wire>
struct JoinedTreeSum {
  JoinedTerms<T> terms;
  bool round_sum;
  float* out;
  template <typename Width>
  __device__ void operator()(int64_t i, Width) const {
    float sum[Width::value];
    joined_sum(terms, i, sum, [](auto& left, auto& right, int, bool single) {
      if (!single || std::is_same_v<T, float>) {
        round_all<Wire>(left);
        round_all<Wire>(right);
      }
#pragma unroll
      for (int k = 0; k < Width::value; ++k) left[k] += right[k];
    });
    add_chained<Wire>(terms.at, terms.chained, i, sum);
    if (round_sum) round_all<Wire>(sum);
    store(sum, out + i);
  }
};

template <typename T>
struct JoinedKeepingSum {
  JoinedTerms<T> terms;
  collectives::ErrorFeedbackResiduals residuals;
  float* out;
  template <typename Width>
  __device__ void operator()(int64_t i, Width) const {
    float sum[1];
    joined_sum(terms, i, sum, [&](auto& left, auto& right, int join, bool) {
      left[0] = keep_rest(left[0] + right[0], residuals.of(join) + i);
    });
    out[i] = sum[0];
  }
};

template <typename T, int Count>
void start_keeping(const collectives::TreeSumTerms& terms, float* out, int64_t n, Stream stream) {
  KeepingSum<T, Count> sum{.terms = {}, .residuals = terms.residuals, .out = out};
  for (int s = 0; s < Count; ++s) sum.terms.at[s] = static_cast<const T*>(terms.arrays[s]);
  for_each_flat<1>(n, true, sum, stream);
}

template <typename T, typename Wire, int Count>
void start(const collectives::TreeSumTerms& terms, float* out, int64_t n, Stream stream) {
  if constexpr (std::is_same_v<Wire, BFloat16>) {
    if (terms.residuals) return start_keeping<T, Count>(terms, out, n, stream);
  }
  TreeSum<T, Wire, Count> sum{.terms = {}, .round_sum = terms.round_sum, .out = out};
  bool vectors = is_aligned(out);
  for (int s = 0; s < Count; ++s) {
    sum.terms.at[s] = static_cast<const T*>(terms.arrays[s]);
    vectors = vectors && is_aligned(sum.terms.at[s]);
  }
  // The compiler spills registers if it loads so many short vectors.
  constexpr int kWidth = Count == kMaxTerms && sizeof(T) == 2 ? 1 : 4;
  for_each_flat<kWidth>(n, vectors, sum, stream);
}

template <typename Wire, int Count>
void start_chained(
    const collectives::TreeSumTerms& terms, int chained, float* out, int64_t n, Stream stream) {
  ChainedTreeSum<Wire, Count> sum{
      .last = {}, .at = {}, .chained = chained, .round_sum = terms.round_sum, .out = out};
  bool vectors = is_aligned(out);
  for (int s = 0; s < terms.count; ++s) {
    const auto* const array = static_cast<const float*>(terms.arrays[s]);
    (s < chained ? sum.at[s] : sum.last.at[s - chained]) = array;
    vectors = vectors && is_aligned(array);
  }
  for_each_flat<4>(n, vectors, sum, stream);
}

template <typename T, typename Wire>
void start_joined(const collectives::TreeSumTerms& terms, float* out, int64_t n, Stream stream) {
  LOCKSTEP_REQUIRE(terms.count <= kMaxTerms);
  const int chained = terms.residuals ? 0 : collectives::chained_terms(terms);
  if constexpr (std::is_same_v<T, float>) {
    if (chained > 0 && collectives::is_balanced_behind(terms, chained)) {
      switch (terms.count - chained) {
        case 2: return start_chained<Wire, 2>(terms, chained, out, n, stream);
        case 4: return start_chained<Wire, 4>(terms, chained, out, n, stream);
        case 8: return start_chained<Wire, 8>(terms, chained, out, n, stream);
        default: break;
      }
    }
  }
  JoinedTerms<T> joined = {};
  joined.count = terms.count;
  joined.chained = chained;
  bool vectors = is_aligned(out);
  for (int s = 0; s < terms.count; ++s) {
    joined.at[s] = static_cast<const T*>(terms.arrays[s]);
    joined.joins[s] = terms.joins[s];
    vectors = vectors && is_aligned(joined.at[s]);
  }
  joined.joins[terms.count - 1] -= static_cast<unsigned char>(chained);
  if constexpr (std::is_same_v<Wire, BFloat16>) {
    if (terms.residuals) {
      const JoinedKeepingSum<T> sum = {joined, terms.residuals, out};
      return for_each_flat<1>(n, true, sum, stream);
    }
  }
  const JoinedTreeSum<T, Wire> sum = {joined, terms.round_sum, out};
  for_each_flat<4>(n, vectors, sum, stream);
}

template <typename T, typename Wire>
void start_count(const collectives::TreeSumTerms& terms, float* out, int64_t n, Stream stream) {
  if (terms.joins != nullptr) return start_joined<T, Wire>(terms, out, n, stream);
  switch (terms.count) {
    case 1: return start<T, Wire, 1>(terms, out, n, stream);
    case 2: return start<T, Wire, 2>(terms, out, n, stream);
    case 4: return start<T, Wire, 4>(terms, out, n, stream);
    case 8: return start<T, Wire, 8>(terms, out, n, stream);
    case 16: return start<T, Wire, 16>(terms, out, n, stream);
    case 32: return start<T, Wire, 32>(terms, out, n, stream);
    case kMaxTerms: return start<T, Wire, kMaxTerms>(terms, out, n, stream);
    default: LOCKSTEP_REQUIRE(false && "a power of two up to kMaxTerms");
  }
}

template <typename Wire>
void start_rounded(const collectives::TreeSumTerms& terms, float* out, int64_t n, Stream stream) {
  if (terms.travelled) return start_count<Wire, Wire>(terms, out, n, stream);
  start_count<float, Wire>(terms, out, n, stream);
}

template <typename Wire>
void start_pack(const float* from, std::byte* to, int64_t n, Stream stream) {
  const Copied<float, Wire> pack = {from, reinterpret_cast<Wire*>(to)};
  for_each_flat<4>(n, is_aligned(from) && is_aligned(to), pack, stream);
}

}  // namespace

void tree_sum(const collectives::TreeSumTerms& terms, float* out, int64_t n, Stream stream) {
  LOCKSTEP_REQUIRE(terms.wire == DType::kBF16 || !terms.residuals);
  LOCKSTEP_REQUIRE(terms.copy_count == 0);
  switch (terms.wire) {
    case DType::kBF16: return start_rounded<BFloat16>(terms, out, n, stream);
    case DType::kF16: return start_rounded<Float16>(terms, out, n, stream);
    default: break;
  }
  start_count<float, float>(terms, out, n, stream);
}

void pack(const float* from, DType wire, std::byte* to, int64_t n, Stream stream) {
  if (wire == DType::kBF16) return start_pack<BFloat16>(from, to, n, stream);
  LOCKSTEP_REQUIRE(wire == DType::kF16);
  start_pack<Float16>(from, to, n, stream);
}

}  // namespace lockstep::cuda

// Which keys a block of queries sees. Compiled once per instruction set: see simd-inl.h.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_MASK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_MASK_INL_H
#undef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_MASK_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_MASK_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/simd-inl.h"
#include "runtime/graph/ops/attention.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The mask of a block of queries of one sample.
class AttentionMask {
 public:
  // How much of a block of keys a block of queries sees.
  enum class View { kNothing, kPart, kAll };

  // `queries`: at most kMax of them. `documents`: (T), of the sample, or null; borrowed.
  AttentionMask(const graph::AttentionShape& shape, const int32_t* documents, Range queries)
      : shape_(shape), documents_(documents), queries_(queries) {
    if (documents == nullptr) return;
    std::fill_n(of_queries_, kMax, kNoDocument);
    for (int64_t i = 0; i < queries.size(); ++i) {
      const int32_t number = shape.seen_document(documents[queries.begin + i]);
      of_queries_[i] = number < 0 ? kNoDocument : number;
      numbers_.add(number);
    }
  }

  // Whether a query may see nothing in the first blocks of keys that it visits, or in any.
  bool sparse() const { return documents_ != nullptr || shape_.window > 0; }

  // The keys in reach of any query, from a multiple of `block` on.
  Range keys(int64_t block) const {
    return {shape_.first_key(queries_.begin) / block * block, shape_.keys_end(queries_.end - 1)};
  }

  // For a causal mask: whether the block's keys are its queries, each of which sees the keys up to
  // itself.
  bool on_diagonal(Range keys) const { return shape_.causal && keys.begin == queries_.begin; }

  int64_t first_query(int64_t key) const { return shape_.first_query(key); }

  View view(Range keys) const {
    const bool all = shape_.first_key(queries_.end - 1) <= keys.begin &&
                     shape_.keys_end(queries_.begin) >= keys.end;
    if (documents_ == nullptr) return all ? View::kAll : View::kPart;
    Numbers of_keys;
    for (int64_t key = keys.begin; key < keys.end; ++key) of_keys.add(documents_[key]);
    if (of_keys.highest < numbers_.lowest || of_keys.lowest > numbers_.highest)
      return View::kNothing;
    return all && of_keys.is_one() && numbers_.is_one() ? View::kAll : View::kPart;
  }

  // True in the lanes whose query (index lane + ... of the block) may not see the key. Lanes past
  // the end of the block are arbitrary.
  HWY_INLINE auto hidden(int64_t lane, int64_t key) const {
    using I32 = hn::RebindToSigned<F32>;
    const I32 d;
    // Iota of a variable would store each lane and reload them all once the stores are done.
    const auto query =
        hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<int32_t>(queries_.begin + lane)));
    auto hidden = hn::Lt(query, hn::Set(d, static_cast<int32_t>(shape_.first_query(key))));
    if (shape_.window > 0)
      hidden = hn::Or(hidden,
                      hn::Gt(query, hn::Set(d, static_cast<int32_t>(shape_.queries_end(key) - 1))));
    if (documents_ != nullptr)
      hidden = hn::Or(
          hidden,
          hn::Ne(hn::Load(d, of_queries_ + lane), hn::Set(d, std::max(documents_[key], -1))));
    return hn::RebindMask(F32(), hidden);
  }

 private:
  static constexpr int64_t kMax = 64;
  // The document of padding queries, which no visible key has.
  static constexpr int32_t kNoDocument = std::numeric_limits<int32_t>::min();

  // Statistics of the document numbers of some tokens.
  struct Numbers {
    void add(int32_t number) {
      padding |= number < 0;
      if (number < 0) return;
      lowest = std::min(lowest, number);
      highest = std::max(highest, number);
    }
    bool is_one() const { return !padding && lowest == highest; }

    int32_t lowest = std::numeric_limits<int32_t>::max(), highest = -1;
    bool padding = false;
  };

  const graph::AttentionShape& shape_;
  const int32_t* documents_;
  Range queries_;
  Numbers numbers_;
  alignas(64) int32_t of_queries_[kMax];
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_MASK_INL_H

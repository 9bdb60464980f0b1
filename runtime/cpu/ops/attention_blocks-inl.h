// Blocks of queries and keys of attention, and their products (see attention.cc). Compiled once per
// instruction set: see simd-inl.h.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_BLOCKS_INL_H
#undef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_BLOCKS_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_BLOCKS_INL_H
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/simd-inl.h"
#include "runtime/graph/ops/attention.h"

#ifndef LOCKSTEP_RUNTIME_CPU_ATTENTION_CONSTANTS
#define LOCKSTEP_RUNTIME_CPU_ATTENTION_CONSTANTS
namespace lockstep::cpu {
constexpr int64_t kBlock = 64;  // queries and keys of a block; part of the order of summation

// Scratch memory of one worker, in floats. Each part is a multiple of 16, so that all stay aligned.
struct AttentionScratch {
  int64_t vectors;    // a block of queries, keys or outputs: kBlock x D
  int64_t kept;       // a block of dropout factors; 0 without dropout
  int64_t widened;    // the keys, and the values, of a head of bfloat16; 0 for floats
  int64_t gradients;  // of these, in the backward pass
  AttentionScratch(const graph::AttentionShape& shape, bool drops, bool halves, bool backward)
      : vectors(kBlock * width(shape)),
        kept(drops ? kBlock * kBlock : 0),
        widened(halves ? round_up(shape.time, kBlock) * width(shape) : 0),
        gradients(backward ? widened : 0) {}
  // Rows packed by multiply_block, with room for a vector stored past their end.
  int64_t packed_rows() const { return vectors + 16; }
  int64_t floats() const {
    return packed_rows() + 5 * vectors + 2 * kBlock * kBlock + 3 * kBlock + kept + 2 * widened +
           2 * gradients;
  }
  // Floats between rows of D.
  static int64_t width(const graph::AttentionShape& shape) {
    return round_up(shape.head_size, kMaxPanel);
  }
};
template <typename Op>
AttentionScratch scratch_sizes(const Op& op) {
  const bool backward = requires { op.d_qkv; };
  const bool halves = std::is_same_v<std::decay_t<decltype(*op.qkv)>, BFloat16>;
  return {op.shape, op.dropout.probability > 0, halves, backward};
}
// The heads of k and v, each with those of q that share it, which workers share in the backward
// pass.
inline int64_t backward_units(const graph::AttentionShape& shape) {
  return shape.batch * shape.kv_heads;
}
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// One worker's memory, for one block of queries.
struct AttentionWorker {
  AttentionWorker(float* scratch, const AttentionScratch& sizes) : products(scratch) {
    const int64_t vectors = sizes.vectors;
    float* next = scratch + sizes.packed_rows();
    const auto take = [&next](int64_t floats) {
      float* const taken = next;
      next += floats;
      return taken;
    };
    scores = take(kBlock * kBlock);
    d_scores = take(kBlock * kBlock);
    for (float** part : {&q_transposed, &d_out_transposed, &q, &d_out, &sums})
      *part = take(vectors);
    for (float** part : {&maximum, &total, &delta}) *part = take(kBlock);
    kept = take(sizes.kept);
    for (float** part : {&k, &v}) *part = take(sizes.widened);
    for (float** part : {&d_k, &d_v}) *part = take(sizes.gradients);
  }

  float* products;          // for multiply_block
  float* scores;            // (keys, queries) s^T, then p^T
  float* d_scores;          // (keys, queries) the gradient of p^T, then of s^T
  float* q_transposed;      // (D, queries) packed
  float* d_out_transposed;  // (D, queries) packed
  float* q;                 // (queries, D) packed
  float* d_out;             // (queries, D) packed
  float* sums;              // (D, queries) o^T, or d_q^T
  float* maximum;           // (queries) m; backward: log_sum_exp
  float* total;             // (queries) l
  float* delta;             // (queries)
  float* kept;              // (keys, queries) dropout factors of p^T
  float *k, *v;             // (T, D) of bfloat16 as floats
  float *d_k, *d_v;         // (T, D) sums that are rounded to bfloat16 at their end
  // What k and v have: the tokens of a head.
  const void* widened_head = nullptr;
  Range widened = {0, 0};
};

// One head of one sample, and the head of k and v that it uses.
template <typename T>
struct AttentionHead {
  AttentionHead(const graph::AttentionShape& s, const T* qkv, int64_t index)
      : number(index),
        time(s.time),
        size(s.head_size),
        stride(s.packed_width()),
        out_stride(s.width()),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_size)))),
        q_offset(index / s.heads * s.time * stride + index % s.heads * s.head_size),
        k_offset(index / s.heads * s.time * stride + s.width() +
                 index % s.heads / s.group() * s.head_size),
        v_offset(k_offset + s.kv_width()),
        out_offset(index / s.heads * s.time * out_stride + index % s.heads * s.head_size),
        q(qkv + q_offset),
        k(qkv + k_offset),
        v(qkv + v_offset) {}

  int64_t number;                        // index among the heads of all samples
  int64_t time, size;                    // T, D
  int64_t stride, out_stride;            // P and H D: elements between tokens
  float scale;                           // 1 / sqrt(D)
  int64_t q_offset, k_offset, v_offset;  // offsets of the head in qkv
  int64_t out_offset;                    // offset of the head in out
  const T *q, *k, *v;                    // (T, D), stride P
};

// Where the gradients of a head's keys and values are summed: (T, D).
struct KeyGradients {
  float *k, *v;
  int64_t stride;
};

// Lanes of a block of queries, rounded up to full vectors.
HWY_INLINE int64_t padded(Range queries) { return round_up(queries.size(), kVecLanes); }

// A part that is computed at a time: queries [lane, lane + lanes) of a block, in full vectors, and
// all or the first keys of a block.
struct AttentionPart {
  int64_t lane, lanes;
  Range keys;
};

// The products of a block of queries, by fused multiply-adds of floats. Keys and values of bfloat16
// are widened once for all queries of a head that a worker computes.
template <typename T>
class FusedProducts {
 public:
  FusedProducts(const AttentionHead<T>& head, Range queries, AttentionWorker& work)
      : head_(head), queries_(queries), work_(work) {}

  // `q`, `d_out`: of the block's first query.
  HWY_INLINE void pack_forward(const T* q) {
    const int64_t count = queries_.size();
    pack(as_floats(q, head_.stride, count, work_.products), true, work_.q_transposed);
  }
  HWY_INLINE void pack_backward(const T* q, const T* d_out) {
    const int64_t count = queries_.size();
    const auto pack_both = [&](GemmOperand rows, float* transposed, float* to) HWY_ATTR {
      pack(rows, true, transposed);
      pack(rows, false, to);
    };
    pack_both(as_floats(q, head_.stride, count, work_.products), work_.q_transposed, work_.q);
    pack_both(as_floats(d_out, head_.out_stride, count, work_.products),
              work_.d_out_transposed,
              work_.d_out);
  }

  // Begins a block of keys.
  HWY_INLINE void begin(Range keys) {
    keys_ = keys;
    if constexpr (std::is_same_v<T, float>) {
      k_ = GemmOperand{head_.k, head_.stride}.at(keys.begin, 0);
      v_ = GemmOperand{head_.v, head_.stride}.at(keys.begin, 0);
    } else {
      widen(keys);
      k_ = GemmOperand{work_.k, width()}.at(keys.begin, 0);
      v_ = GemmOperand{work_.v, width()}.at(keys.begin, 0);
    }
  }

  // Calls body(part) for all parts of the block. On the diagonal of a causal mask, a part leaves
  // out the keys that come after its panel of queries.
  template <typename Body>
  HWY_INLINE void for_each_part(bool on_diagonal, Body&& body) const {
    const int64_t all = padded(queries_), together = on_diagonal ? kMaxPanel : all;
    for (int64_t lane = 0; lane < all; lane += together) {
      const int64_t lanes = std::min(together, all - lane);
      const int64_t seen = on_diagonal ? std::min(keys_.size(), lane + lanes) : keys_.size();
      body(AttentionPart{lane, lanes, {keys_.begin, keys_.begin + seen}});
    }
  }

  // scores = k q^T, and d_scores = v d_out^T.
  HWY_INLINE void set_scores(const AttentionPart& part) {
    multiply_by_queries(k_, part, work_.q_transposed, work_.scores);
  }
  HWY_INLINE void set_d_scores(const AttentionPart& part) {
    multiply_by_queries(v_, part, work_.d_out_transposed, work_.d_scores);
  }
  // sums = or += v^T scores, and k^T d_scores.
  HWY_INLINE void add_outputs(const AttentionPart& part, bool accumulate) {
    multiply_weights(v_, part, work_.scores, accumulate);
  }
  HWY_INLINE void add_d_queries(const AttentionPart& part, bool accumulate) {
    multiply_weights(k_, part, work_.d_scores, accumulate);
  }
  // d_v = or += scores d_out, and d_k = or += d_scores q, for the block's keys.
  HWY_INLINE void add_to(const KeyGradients& to, bool on_diagonal, bool accumulate) {
    multiply_by_weights(work_.scores, on_diagonal, work_.d_out, accumulate, to.v, to.stride);
    multiply_by_weights(work_.d_scores, on_diagonal, work_.q, accumulate, to.k, to.stride);
  }

 private:
  // Packs a block of queries or of their gradients.
  HWY_INLINE void pack(GemmOperand rows, bool transposed, float* to) const {
    const int64_t count = queries_.size();
    rows.transposed = transposed;
    pack_panels(
        rows, transposed ? count : head_.size, DepthBlocks(transposed ? head_.size : count), to);
  }

  // Rows (count, D) as floats; those of bfloat16 are written to `widened`.
  HWY_INLINE GemmOperand as_floats(const T* from,
                                   int64_t stride,
                                   [[maybe_unused]] int64_t count,
                                   [[maybe_unused]] float* widened) const {
    if constexpr (std::is_same_v<T, float>) {
      return {from, stride};
    } else {
      for (int64_t row = 0; row < count; ++row) {
        for_each_vector(static_cast<size_t>(head_.size), [&](size_t d, auto access) HWY_ATTR {
          access.store(access.load(from + row * stride + d), widened + row * width() + d);
        });
      }
      return {widened, width()};
    }
  }

  // Elements between rows that are widened.
  int64_t width() const { return round_up(head_.size, kMaxPanel); }

  // Widens the keys and values that have not been.
  HWY_INLINE void widen(Range keys) {
    Range& known = work_.widened;
    const bool continues = work_.widened_head == head_.k && keys.begin >= known.begin;
    if (!continues || keys.begin > known.end) known = {keys.begin, keys.begin};
    work_.widened_head = head_.k;
    if (keys.end <= known.end) return;
    const int64_t first = known.end, count = keys.end - first;
    const int64_t from = first * head_.stride, to = first * width();
    as_floats(head_.k + from, head_.stride, count, work_.k + to);
    as_floats(head_.v + from, head_.stride, count, work_.v + to);
    known.end = keys.end;
  }

  // to (keys, queries) = rows (keys, D) packed^T for a part, where `packed` has the panels of the
  // transposed block of queries.
  HWY_INLINE void multiply_by_queries(GemmOperand rows,
                                      const AttentionPart& part,
                                      const float* packed,
                                      float* to) {
    const DepthBlocks blocks(head_.size);
    for (int64_t index = 0; index < blocks.count(); ++index) {
      const Range block = blocks.range(index);
      const float* const panels =
          packed + block.begin * padded(queries_) + part.lane * block.size();
      multiply_block(part.keys.size(),
                     part.lanes,
                     block.size(),
                     rows.at(0, block.begin),
                     Panels{.b = {}, .ready = panels},
                     Result{to + part.lane, kBlock, /*padded=*/true},
                     index > 0,
                     work_.products);
    }
  }

  // sums (D, queries) = or += rows^T (D, keys) weights (keys, queries) for a part.
  HWY_INLINE void multiply_weights(GemmOperand rows,
                                   const AttentionPart& part,
                                   const float* weights,
                                   bool accumulate) {
    rows.transposed = true;
    multiply_block(head_.size,
                   part.lanes,
                   part.keys.size(),
                   rows,
                   Panels{.b = {weights + part.lane, kBlock}, .in_place = true},
                   Result{work_.sums + part.lane, kBlock, /*padded=*/true},
                   accumulate,
                   work_.products);
  }

  // to (keys, D) = or += weights (keys, queries) rows (queries, D), where `packed` has the panels
  // of `rows`. On the diagonal of a causal mask, queries before a panel of keys are left out. Their
  // rows come first in each panel of `packed`, which is therefore used panel by panel.
  HWY_INLINE void multiply_by_weights(const float* weights,
                                      bool on_diagonal,
                                      const float* packed,
                                      bool accumulate,
                                      float* to,
                                      int64_t stride) {
    const int64_t all = queries_.size(), rows_together = on_diagonal ? kMaxPanel : keys_.size();
    for (int64_t key = 0; key < keys_.size(); key += rows_together) {
      const int64_t first = on_diagonal ? key : 0;
      const int64_t columns_together = first > 0 ? kPanel : head_.size;
      for (int64_t d = 0; d < head_.size; d += columns_together) {
        const int64_t columns = std::min(columns_together, head_.size - d);
        multiply_block(
            std::min(rows_together, keys_.size() - key),
            columns,
            all - first,
            GemmOperand{weights + key * kBlock + first, kBlock},
            Panels{.b = {}, .ready = packed + d * all + first * round_up(columns, kVecLanes)},
            Result{to + (keys_.begin + key) * stride + d,
                   static_cast<size_t>(stride),
                   /*padded=*/false},
            accumulate,
            work_.products);
      }
    }
  }

  const AttentionHead<T>& head_;
  Range queries_, keys_{};
  GemmOperand k_, v_;  // (keys, D)
  AttentionWorker& work_;
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_BLOCKS_INL_H

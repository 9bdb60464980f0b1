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
  int64_t vectors;  // a block of queries, keys or outputs: kBlock x D
  int64_t kept;     // a block of dropout factors; 0 without dropout
  AttentionScratch(int64_t head_size, bool drops)
      : vectors(kBlock * round_up(head_size, kMaxPanel)), kept(drops ? kBlock * kBlock : 0) {}
  // Rows packed by multiply_block, with room for a vector stored past their end.
  int64_t packed_rows() const { return vectors + 16; }
  int64_t floats() const {
    return packed_rows() + 5 * vectors + 2 * kBlock * kBlock + 3 * kBlock + kept;
  }
};
template <typename Op>
AttentionScratch scratch_sizes(const Op& op) {
  return {op.shape.head_size, op.dropout.probability > 0};
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
};

// One head of one sample, and the head of k and v that it uses.
struct AttentionHead {
  AttentionHead(const graph::AttentionShape& s, const float* qkv, int64_t index)
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
  int64_t stride, out_stride;            // P and H D: floats between tokens
  float scale;                           // 1 / sqrt(D)
  int64_t q_offset, k_offset, v_offset;  // offsets of the head in qkv
  int64_t out_offset;                    // offset of the head in out
  const float *q, *k, *v;                // (T, D), stride P
};

// Lanes of a block of queries, rounded up to full vectors.
HWY_INLINE int64_t padded(Range queries) { return round_up(queries.size(), kVecLanes); }

// A part that is computed at a time: queries [lane, lane + lanes) of a block, in full vectors, and
// all or the first keys of a block.
struct AttentionPart {
  int64_t lane, lanes;
  Range keys;
};

// Calls body(part) for all parts of a block. On the diagonal of a causal mask, a part leaves out
// the keys that come after its panel of queries.
template <typename Body>
HWY_INLINE void for_each_part(bool on_diagonal, Range keys, Range queries, Body&& body) {
  const int64_t all = padded(queries), together = on_diagonal ? kMaxPanel : all;
  for (int64_t lane = 0; lane < all; lane += together) {
    const int64_t lanes = std::min(together, all - lane);
    const int64_t seen = on_diagonal ? std::min(keys.size(), lane + lanes) : keys.size();
    body(AttentionPart{lane, lanes, {keys.begin, keys.begin + seen}});
  }
}

// to (keys, queries) = rows (keys, D) packed^T for a part, where `packed` has the panels of the
// transposed block of queries.
HWY_INLINE void multiply_by_queries(const float* rows,
                                    const AttentionHead& head,
                                    const AttentionPart& part,
                                    Range queries,
                                    const float* packed,
                                    float* to,
                                    float* products) {
  const DepthBlocks blocks(head.size);
  const GemmOperand a{rows + part.keys.begin * head.stride, head.stride};
  for (int64_t index = 0; index < blocks.count(); ++index) {
    const Range block = blocks.range(index);
    const float* const panels = packed + block.begin * padded(queries) + part.lane * block.size();
    multiply_block(part.keys.size(),
                   part.lanes,
                   block.size(),
                   a.at(0, block.begin),
                   Panels{.b = {}, .ready = panels},
                   Result{to + part.lane, kBlock, /*padded=*/true},
                   index > 0,
                   products);
  }
}

// to (D, queries) = or += rows^T (D, keys) weights (keys, queries) for a part.
HWY_INLINE void multiply_weights(const float* rows,
                                 const AttentionHead& head,
                                 const AttentionPart& part,
                                 const float* weights,
                                 bool accumulate,
                                 float* to,
                                 float* products) {
  const GemmOperand a{rows + part.keys.begin * head.stride, head.stride, /*transposed=*/true};
  multiply_block(head.size,
                 part.lanes,
                 part.keys.size(),
                 a,
                 Panels{.b = {weights + part.lane, kBlock}, .in_place = true},
                 Result{to + part.lane, kBlock, /*padded=*/true},
                 accumulate,
                 products);
}

// to (keys, D), stride P, = or += weights (keys, queries) rows (queries, D), where `packed` has the
// panels of `rows`. On the diagonal of a causal mask, queries before a panel of keys are left out.
// Their rows come first in each panel of `packed`, which is therefore used panel by panel.
HWY_INLINE void multiply_by_weights(const float* weights,
                                    const AttentionHead& head,
                                    bool on_diagonal,
                                    Range keys,
                                    Range queries,
                                    const float* packed,
                                    bool accumulate,
                                    float* to,
                                    float* products) {
  const int64_t all = queries.size(), rows_together = on_diagonal ? kMaxPanel : keys.size();
  for (int64_t key = 0; key < keys.size(); key += rows_together) {
    const int64_t first = on_diagonal ? key : 0;
    const int64_t columns_together = first > 0 ? kPanel : head.size;
    for (int64_t d = 0; d < head.size; d += columns_together) {
      const int64_t columns = std::min(columns_together, head.size - d);
      multiply_block(
          std::min(rows_together, keys.size() - key),
          columns,
          all - first,
          GemmOperand{weights + key * kBlock + first, kBlock},
          Panels{.b = {}, .ready = packed + d * all + first * round_up(columns, kVecLanes)},
          Result{to + (keys.begin + key) * head.stride + d,
                 static_cast<size_t>(head.stride),
                 /*padded=*/false},
          accumulate,
          products);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_BLOCKS_INL_H

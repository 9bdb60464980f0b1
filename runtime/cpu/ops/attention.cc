#include "runtime/graph/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/simd-inl.h"

// Without the T x T matrix: keys are visited in blocks, and the softmax is kept as a running
// maximum and sum (Milakov and Gimelshein 2018; Dao et al. 2022). The order in which anything is
// summed is fixed by the shape alone.
//
// A block of queries is worked on at a time, and everything about it is kept transposed, with
// queries along the vector: scores s^T (keys, queries) = k q^T, output o^T (D, queries) = v^T p^T.
// So the softmax over keys runs down the columns, lane by lane, without any sum across lanes; k and
// v are read where they lie, as the broadcast operands; and p^T is a ready-made panel.
//
// Forward, for each block of keys, with m the maximum so far and l the sum of exponentials:
//   m' = max(m, s)   p = exp((s - m') / sqrt D)   l = l exp((m - m') / sqrt D) + sum p
//   o = o exp((m - m') / sqrt D) + v^T p;  at the end out = o / l.
// Backward, with p = exp(s / sqrt D - log_sum_exp) and delta = d_out . out for each query:
//   d_v += p^T d_out   d_s = p (v d_out^T - delta) / sqrt D   d_k += d_s^T q   d_q += d_s k.

#ifndef LOCKSTEP_RUNTIME_CPU_ATTENTION_CONSTANTS
#define LOCKSTEP_RUNTIME_CPU_ATTENTION_CONSTANTS
namespace lockstep::cpu {
constexpr int64_t kBlock = 64;  // queries and keys of a block; part of the order of summation

// Scratch of one worker, in floats, each part a multiple of 16 so that all stay aligned.
struct AttentionScratch {
  int64_t vectors;  // a block of queries, keys or outputs: kBlock x D
  explicit AttentionScratch(int64_t head_size) : vectors(kBlock * round_up(head_size, kMaxPanel)) {}
  // Rows packed by multiply_block, with room for the vector that may be stored past their end.
  int64_t packed_rows() const { return vectors + 16; }
  int64_t floats() const { return packed_rows() + 5 * vectors + 2 * kBlock * kBlock + 3 * kBlock; }
};
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// One worker's memory, for one block of queries.
struct AttentionWorker {
  AttentionWorker(float* scratch, int64_t head_size) : products(scratch) {
    const int64_t vectors = AttentionScratch(head_size).vectors;
    float* next = scratch + AttentionScratch(head_size).packed_rows();
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
};

// One head of one sample, and the head of k and v that it reads.
struct AttentionHead {
  AttentionHead(const AttentionShape& s, const float* qkv, int64_t index)
      : time(s.time),
        size(s.head_size),
        stride(s.packed_width()),
        out_stride(s.width()),
        causal(s.causal),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_size)))),
        q_offset(index / s.heads * s.time * stride + index % s.heads * s.head_size),
        k_offset(index / s.heads * s.time * stride + s.width() +
                 index % s.heads / s.group() * s.head_size),
        v_offset(k_offset + s.kv_width()),
        out_offset(index / s.heads * s.time * out_stride + index % s.heads * s.head_size),
        q(qkv + q_offset),
        k(qkv + k_offset),
        v(qkv + v_offset) {}

  int64_t keys_seen_by(Range queries) const { return causal ? queries.end : time; }

  int64_t time, size;          // T, D
  int64_t stride, out_stride;  // P and H D: floats between tokens
  bool causal;
  float scale;                           // 1 / sqrt(D)
  int64_t q_offset, k_offset, v_offset;  // of the head in qkv ...
  int64_t out_offset;                    // ... and in out
  const float *q, *k, *v;                // (T, D), stride P
};

HWY_INLINE int64_t padded(Range queries) { return round_up(queries.size(), kVecLanes); }

// to (keys, queries) = rows (keys, D) packed^T, where `packed` has the panels of a transposed block
// of queries.
HWY_INLINE void multiply_by_queries(const float* rows,
                                    const AttentionHead& head,
                                    Range keys,
                                    Range queries,
                                    const float* packed,
                                    float* to,
                                    float* products) {
  const DepthBlocks blocks(head.size);
  const GemmOperand a{rows + keys.begin * head.stride, head.stride};
  for (int64_t index = 0; index < blocks.count(); ++index) {
    const Range block = blocks.range(index);
    multiply_block(keys.size(),
                   padded(queries),
                   block.size(),
                   a.at(0, block.begin),
                   Panels{.b = {}, .ready = packed + block.begin * padded(queries)},
                   Result{to, kBlock, /*padded=*/true},
                   index > 0,
                   products);
  }
}

// to (D, queries) = or += rows^T (D, keys) weights (keys, queries).
HWY_INLINE void multiply_weights(const float* rows,
                                 const AttentionHead& head,
                                 Range keys,
                                 Range queries,
                                 const float* weights,
                                 bool accumulate,
                                 float* to,
                                 float* products) {
  const GemmOperand a{rows + keys.begin * head.stride, head.stride, /*transposed=*/true};
  multiply_block(head.size,
                 padded(queries),
                 keys.size(),
                 a,
                 Panels{.b = {weights, kBlock}, .in_place = true},
                 Result{to, kBlock, /*padded=*/true},
                 accumulate,
                 products);
}

// to (keys, D), stride P, = or += weights (keys, queries) rows (queries, D), where `packed` has
// the panels of rows.
HWY_INLINE void multiply_by_weights(const float* weights,
                                    const AttentionHead& head,
                                    Range keys,
                                    Range queries,
                                    const float* packed,
                                    bool accumulate,
                                    float* to,
                                    float* products) {
  multiply_block(keys.size(),
                 head.size,
                 queries.size(),
                 GemmOperand{weights, kBlock},
                 Panels{.b = {}, .ready = packed},
                 Result{to + keys.begin * head.stride,
                        static_cast<size_t>(head.stride),
                        /*padded=*/false},
                 accumulate,
                 products);
}

// Calls body(lane, queries) for each vector of queries of the block.
template <typename Body>
HWY_INLINE void for_each_query_vector(Range queries, Body&& body) {
  for (int64_t lane = 0; lane < queries.size(); lane += kVecLanes) body(lane);
}

// True in the lanes whose query, queries.begin + lane.., comes before the key.
HWY_INLINE auto is_hidden(Range queries, int64_t lane, int64_t key) {
  const hn::RebindToSigned<F32> i32;
  const auto query = hn::Iota(i32, static_cast<int32_t>(lane));
  return hn::RebindMask(F32(),
                        hn::Lt(query, hn::Set(i32, static_cast<int32_t>(key - queries.begin))));
}

// Whether some query of the block may not see some key of the block.
HWY_INLINE bool has_hidden(const AttentionHead& head, Range keys, Range queries) {
  return head.causal && keys.end - 1 > queries.begin;
}

// Sets scores of keys after the query to -infinity.
HWY_INLINE void hide_later_keys(float* scores, Range keys, Range queries) {
  for (int64_t key = keys.begin; key < keys.end; ++key) {
    float* const row = scores + (key - keys.begin) * kBlock;
    for_each_query_vector(queries, [&](int64_t lane) HWY_ATTR {
      const Vec s = hn::Load(F32(), row + lane);
      hn::Store(
          hn::IfThenElse(is_hidden(queries, lane, key), set(RowMax::kNone), s), F32(), row + lane);
    });
  }
}

// Replaces the scores of a block of keys by p and brings maximum, total and o^T up to date.
HWY_INLINE void update_softmax(
    const AttentionHead& head, int64_t keys, Range queries, bool first, AttentionWorker& work) {
  const F32 d;
  const Vec scale = set(head.scale);
  for_each_query_vector(queries, [&](int64_t lane) HWY_ATTR {
    const Vec before = first ? set(RowMax::kNone) : hn::Load(d, work.maximum + lane);
    Vec maximum = before;
    for (int64_t key = 0; key < keys; ++key) {
      maximum = hn::Max(hn::Load(d, work.scores + key * kBlock + lane), maximum);
    }
    Vec sum = hn::Zero(d);
    for (int64_t key = 0; key < keys; ++key) {
      float* const s = work.scores + key * kBlock + lane;
      const Vec p = exp(hn::Mul(scale, hn::Sub(hn::Load(d, s), maximum)));
      hn::Store(p, d, s);
      sum = hn::Add(sum, p);
    }
    hn::Store(maximum, d, work.maximum + lane);
    if (!first) {
      const Vec shrink = exp(hn::Mul(scale, hn::Sub(before, maximum)));
      sum = hn::MulAdd(hn::Load(d, work.total + lane), shrink, sum);
      if (!hn::AllTrue(d, hn::Eq(before, maximum))) {  // else shrink is exactly 1
        for (int64_t i = 0; i < head.size; ++i) {
          float* const o = work.sums + i * kBlock + lane;
          hn::Store(hn::Mul(hn::Load(d, o), shrink), d, o);
        }
      }
    }
    hn::Store(sum, d, work.total + lane);
  });
}

// to (queries, D), row stride `stride`, = the transpose of work.sums, each query's row times
// factor[query].
HWY_INLINE void store_transposed(const float* sums,
                                 const AttentionHead& head,
                                 Range queries,
                                 const float* factor,
                                 float* to,
                                 int64_t stride) {
  to += queries.begin * stride;
  for_each_vector(head.size, [&](size_t d, auto access) HWY_ATTR {
    const int64_t rows = std::min<int64_t>(kVecLanes, head.size - d);
    alignas(64) float block[kBlock * kVecLanes];
    pack_transposed(sums + d * kBlock, kBlock, rows, queries.size(), block, kVecLanes);
    for (int64_t query = 0; query < queries.size(); ++query) {
      const Vec values = hn::Load(F32(), block + query * kVecLanes);
      access.store(hn::Mul(values, set(factor[query])), to + query * stride + d);
    }
  });
}

HWY_NOINLINE void forward_block(const AttentionHead& head,
                                Range queries,
                                float* out,
                                float* log_sum_exp,
                                AttentionWorker& work) {
  pack_panels(GemmOperand{head.q + queries.begin * head.stride, head.stride, /*transposed=*/true},
              queries.size(),
              DepthBlocks(head.size),
              work.q_transposed);
  const int64_t end = head.keys_seen_by(queries);
  for (int64_t begin = 0; begin < end; begin += kBlock) {
    const Range keys{begin, std::min(end, begin + kBlock)};
    multiply_by_queries(head.k, head, keys, queries, work.q_transposed, work.scores, work.products);
    if (has_hidden(head, keys, queries)) hide_later_keys(work.scores, keys, queries);
    update_softmax(head, keys.size(), queries, begin == 0, work);
    multiply_weights(head.v, head, keys, queries, work.scores, begin > 0, work.sums, work.products);
  }
  const F32 d;
  for_each_query_vector(queries, [&](int64_t lane) HWY_ATTR {
    const Vec total = hn::Load(d, work.total + lane);
    const Vec log_sum =
        hn::MulAdd(set(head.scale), hn::Load(d, work.maximum + lane), hn::Log(d, total));
    // Log turns NaN into a number; total - total keeps it.
    hn::Store(hn::Add(log_sum, hn::Sub(total, total)), d, work.maximum + lane);
    hn::Store(hn::Div(set(1.0f), total), d, work.total + lane);
  });
  std::copy_n(work.maximum, queries.size(), log_sum_exp + queries.begin);
  store_transposed(work.sums, head, queries, work.total, out, head.out_stride);
}

// Turns scores into p^T and the gradient of p^T, in d_scores, into that of s^T.
HWY_INLINE void softmax_backward(const AttentionHead& head,
                                 Range keys,
                                 Range queries,
                                 AttentionWorker& work) {
  const F32 d;
  const Vec scale = set(head.scale);
  const bool hides = has_hidden(head, keys, queries);
  for_each_query_vector(queries, [&](int64_t lane) HWY_ATTR {
    const Vec log_sum = hn::Load(d, work.maximum + lane);
    const Vec delta = hn::Load(d, work.delta + lane);
    for (int64_t key = 0; key < keys.size(); ++key) {
      float* const s = work.scores + key * kBlock + lane;
      float* const d_s = work.d_scores + key * kBlock + lane;
      Vec p = exp(hn::MulSub(scale, hn::Load(d, s), log_sum));
      Vec gradient = hn::Mul(hn::Mul(p, hn::Sub(hn::Load(d, d_s), delta)), scale);
      if (hides) {
        const auto hidden = is_hidden(queries, lane, keys.begin + key);
        p = hn::IfThenZeroElse(hidden, p);
        gradient = hn::IfThenZeroElse(hidden, gradient);
      }
      hn::Store(p, d, s);
      hn::Store(gradient, d, d_s);
    }
  });
}

// Adds what one block of queries gives to d_k and d_v, and writes its d_q. The first head of those
// that share k and v starts the sums.
HWY_NOINLINE void backward_block(const AttentionHead& head,
                                 bool first_head,
                                 Range queries,
                                 const float* d_out,
                                 const float* out,
                                 const float* log_sum_exp,
                                 float* d_qkv,
                                 AttentionWorker& work) {
  float* const d_k = d_qkv + head.k_offset;
  float* const d_v = d_qkv + head.v_offset;
  const int64_t count = queries.size();
  const float* const q = head.q + queries.begin * head.stride;
  d_out += queries.begin * head.out_stride;
  out += queries.begin * head.out_stride;
  pack_panels(GemmOperand{q, head.stride, /*transposed=*/true},
              count,
              DepthBlocks(head.size),
              work.q_transposed);
  pack_panels(GemmOperand{d_out, head.out_stride, /*transposed=*/true},
              count,
              DepthBlocks(head.size),
              work.d_out_transposed);
  pack_panels(GemmOperand{q, head.stride}, head.size, DepthBlocks(count), work.q);
  pack_panels(GemmOperand{d_out, head.out_stride}, head.size, DepthBlocks(count), work.d_out);
  for (int64_t i = 0; i < kBlock; ++i) {  // lanes past the end repeat the last query
    const int64_t query = std::min(i, count - 1);
    work.maximum[i] = log_sum_exp[queries.begin + query];
    work.delta[i] =
        row_dot(d_out + query * head.out_stride, out + query * head.out_stride, head.size);
  }
  const int64_t end = head.keys_seen_by(queries);
  for (int64_t begin = 0; begin < end; begin += kBlock) {
    const Range keys{begin, std::min(end, begin + kBlock)};
    multiply_by_queries(head.k, head, keys, queries, work.q_transposed, work.scores, work.products);
    multiply_by_queries(
        head.v, head, keys, queries, work.d_out_transposed, work.d_scores, work.products);
    softmax_backward(head, keys, queries, work);
    // The first block of queries that sees these keys starts their sums.
    const bool accumulate = !first_head || queries.begin > (head.causal ? keys.begin : 0);
    multiply_by_weights(
        work.scores, head, keys, queries, work.d_out, accumulate, d_v, work.products);
    multiply_by_weights(work.d_scores, head, keys, queries, work.q, accumulate, d_k, work.products);
    multiply_weights(
        head.k, head, keys, queries, work.d_scores, begin > 0, work.sums, work.products);
  }
  std::fill_n(work.total, kBlock, 1.0f);
  store_transposed(work.sums, head, queries, work.total, d_qkv + head.q_offset, head.stride);
}

Range query_block(const AttentionShape& shape, int64_t index) {
  return {index * kBlock, std::min(shape.time, (index + 1) * kBlock)};
}

// A worker's part of the workspace.
template <typename Op>
float* scratch_of(const Op& op, int64_t worker) {
  return reinterpret_cast<float*>(op.workspace) +
         worker * AttentionScratch(op.shape.head_size).floats();
}

void attention_forward_kernel(const AttentionForward<float>& op) {
  const AttentionShape& shape = op.shape;
  const int workers = compute_threads();
  const int64_t blocks = ceil_div(shape.time, kBlock);
  for_each_worker(workers, [&](int64_t index) HWY_ATTR {
    AttentionWorker work(scratch_of(op, index), shape.head_size);
    const Range mine = share(shape.batch * shape.heads * blocks, 1, index, workers);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
      const AttentionHead head(shape, op.qkv, unit / blocks);
      forward_block(head,
                    query_block(shape, unit % blocks),
                    op.y + head.out_offset,
                    op.log_sum_exp + unit / blocks * shape.time,
                    work);
    }
  });
}

void attention_backward_kernel(const AttentionBackward<float>& op) {
  const AttentionShape& shape = op.shape;
  const int workers = compute_threads();
  const int64_t blocks = ceil_div(shape.time, kBlock);
  for_each_worker(workers, [&](int64_t index) HWY_ATTR {
    AttentionWorker work(scratch_of(op, index), shape.head_size);
    const int64_t group = shape.group();
    const Range mine = share(shape.batch * shape.kv_heads, 1, index, workers);
    for (int64_t unit = mine.begin * group; unit < mine.end * group; ++unit) {
      const AttentionHead head(shape, op.qkv, unit);
      for (int64_t block = 0; block < blocks; ++block) {
        backward_block(head,
                       unit % group == 0,
                       query_block(shape, block),
                       op.d_y + head.out_offset,
                       op.y + head.out_offset,
                       op.log_sum_exp + unit * shape.time,
                       op.d_qkv,
                       work);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(attention_forward_kernel);
HWY_EXPORT(attention_backward_kernel);

namespace {

size_t workspace_bytes(const AttentionShape& shape) {
  return static_cast<size_t>(compute_threads() * AttentionScratch(shape.head_size).floats()) *
         sizeof(float);
}

size_t forward_workspace_bytes(const OpCall& op) {
  return workspace_bytes(AttentionForward<float>::of(op).shape);
}
size_t backward_workspace_bytes(const OpCall& op) {
  return workspace_bytes(AttentionBackward<float>::of(op).shape);
}

void run_forward(const OpCall& call) {
  HWY_DYNAMIC_DISPATCH(attention_forward_kernel)(AttentionForward<float>::of(call));
}

void run_backward(const OpCall& call) {
  HWY_DYNAMIC_DISPATCH(attention_backward_kernel)(AttentionBackward<float>::of(call));
}

constexpr Implementation kRows[] = {
    {OpKind::kAttention, "blockwise", run_forward, forward_workspace_bytes},
    {OpKind::kAttentionBackward, "blockwise", run_backward, backward_workspace_bytes},
};

}  // namespace

constinit const Implementations kCpuAttention = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

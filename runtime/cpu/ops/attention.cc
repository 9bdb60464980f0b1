#include "runtime/graph/ops/attention.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/graph/ops/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/ops/attention_blocks-inl.h"
#include "runtime/cpu/ops/attention_mask-inl.h"
#include "runtime/cpu/philox-inl.h"
#include "runtime/cpu/simd-inl.h"

// Attention without the T x T matrix of scores: the online softmax (Milakov and Gimelshein 2018)
// over blocks of keys, as in FlashAttention (Dao et al. 2022). The shape alone fixes the order of
// every sum, so the bits do not depend on threads.
//
// The unit of work is a block of queries of one head, kBlock = 64. For it, keys are visited in
// blocks of 64, in increasing order. Everything about a block is kept transposed, with queries
// along the vector lanes:
//
//                 queries (lanes) ->                queries (lanes) ->
//     keys  |  s^T = k q^T, then p^T  |       D  |  o^T += v^T p^T  |
//
// So the softmax over keys goes down the columns, lane by lane, without sums across lanes. k and v
// are the broadcast operands (A) of multiply_block() (gemm_block.cc), and p^T serves as its B
// without packing. Blocks of keys that no query of the block sees are skipped. On the diagonal of a
// causal mask, so are the keys that no query of a panel sees.
//
// Forward, for each block of keys, with m the maximum so far and l the sum of exponentials:
//   m' = max(m, s)   p = exp((s - m') / sqrt D)   l = l exp((m - m') / sqrt D) + sum p
//   o = o exp((m - m') / sqrt D) + v^T p;  at the end out = o / l.
// The invariant: after each block, o and l are what a softmax over the keys seen so far would give
// if its exponentials were scaled by exp(-m / sqrt D). The final division removes that scale.
//
// Backward, with p = exp(s / sqrt D - log_sum_exp) recomputed, and delta = d_out . out per query:
//   d_v += p^T d_out   d_s = p (v d_out^T - delta) / sqrt D   d_k += d_s^T q   d_q += d_s k.
// One worker handles all queries of a head of k and v, block by block, so d_k and d_v need no
// atomics.
//
// With dropout and its factors r, 0 or 1 / (1 - probability), drawn again in the backward pass:
//   o += v^T (r p)   d_v += (r p)^T d_out   d_s = p (r (v d_out^T) - delta) / sqrt D.

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
HWY_NOINLINE void draw_kept(
    const Draw& draw, const AttentionHead& head, Range keys, Range queries, AttentionWorker& work) {
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
HWY_INLINE void begin_softmax(const AttentionHead& head, AttentionWorker& work) {
  std::fill_n(work.maximum, kBlock, RowMax::kNone);
  std::fill_n(work.total, kBlock, 0.0f);
  std::fill_n(work.sums, head.size * kBlock, 0.0f);
}

// Replaces the scores of a part by p and updates maximum, total and o^T. `sparse`: a query may have
// seen no key yet, and then has the maximum -infinity, which is not subtracted.
HWY_INLINE void update_softmax(const AttentionHead& head,
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

// to (queries, D), row stride `stride`, = the transpose of `sums`, each query's row multiplied by
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

// Turns the totals of queries into the factors of their sums, and their maxima into log_sum_exp.
// Both are 0 for a query that has seen no key.
HWY_INLINE void end_softmax(const AttentionHead& head, Range queries, AttentionWorker& work) {
  const F32 d;
  for_each_query_vector({0, padded(queries), {}}, [&](int64_t lane) HWY_ATTR {
    const Vec total = hn::Load(d, work.total + lane);
    const auto saw_nothing = hn::Eq(total, hn::Zero(d));
    const Vec log_sum =
        hn::MulAdd(set(head.scale), hn::Load(d, work.maximum + lane), hn::Log(d, total));
    // Log turns NaN into a number; total - total keeps it.
    const Vec kept = hn::Add(log_sum, hn::Sub(total, total));
    hn::Store(hn::IfThenZeroElse(saw_nothing, kept), d, work.maximum + lane);
    hn::Store(hn::IfThenZeroElse(saw_nothing, hn::Div(set(1.0f), total)), d, work.total + lane);
  });
}

HWY_NOINLINE void forward_block(const AttentionHead& head,
                                const AttentionMask& mask,
                                const Draw* draw,
                                Range queries,
                                float* out,
                                float* log_sum_exp,
                                AttentionWorker& work) {
  pack_panels(GemmOperand{head.q + queries.begin * head.stride, head.stride, /*transposed=*/true},
              queries.size(),
              DepthBlocks(head.size),
              work.q_transposed);
  const bool sparse = mask.sparse();
  if (sparse) begin_softmax(head, work);
  const auto [first_key, end] = mask.keys(kBlock);
  for (int64_t begin = first_key; begin < end; begin += kBlock) {
    const Range keys{begin, std::min(end, begin + kBlock)};
    const AttentionMask::View view = mask.view(keys);
    if (view == AttentionMask::View::kNothing) continue;
    const bool first = begin == 0 && !sparse;
    if (draw != nullptr) draw_kept(*draw, head, keys, queries, work);
    for_each_part(mask.on_diagonal(keys), keys, queries, [&](const AttentionPart& part) HWY_ATTR {
      multiply_by_queries(
          head.k, head, part, queries, work.q_transposed, work.scores, work.products);
      if (view == AttentionMask::View::kPart) hide_keys(mask, part, work.scores);
      update_softmax(head, part, first, sparse, work);
      if (draw != nullptr) multiply_by_kept(part, work, work.scores);
      multiply_weights(head.v, head, part, work.scores, !first, work.sums, work.products);
    });
  }
  end_softmax(head, queries, work);
  std::copy_n(work.maximum, queries.size(), log_sum_exp + queries.begin);
  store_transposed(work.sums, head, queries, work.total, out, head.out_stride);
}

// Turns scores into p^T, and d_scores from the gradient of p^T into that of s^T.
HWY_INLINE void softmax_backward(const AttentionHead& head,
                                 const AttentionMask& mask,
                                 bool hides,
                                 const AttentionPart& part,
                                 AttentionWorker& work) {
  const F32 d;
  const Vec scale = set(head.scale);
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

// Adds the contributions of one block of queries to d_k and d_v, and writes its d_q. The first head
// of those that share k and v overwrites d_k and d_v; with a sparse mask, they begin as zeros
// instead.
HWY_NOINLINE void backward_block(const AttentionHead& head,
                                 const AttentionMask& mask,
                                 const Draw* draw,
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
  const bool sparse = mask.sparse();
  if (sparse) std::fill_n(work.sums, head.size * kBlock, 0.0f);
  const auto [first_key, end] = mask.keys(kBlock);
  for (int64_t begin = first_key; begin < end; begin += kBlock) {
    const Range keys{begin, std::min(end, begin + kBlock)};
    const AttentionMask::View view = mask.view(keys);
    if (view == AttentionMask::View::kNothing) continue;
    if (draw != nullptr) draw_kept(*draw, head, keys, queries, work);
    const bool on_diagonal = mask.on_diagonal(keys), hides = view == AttentionMask::View::kPart;
    for_each_part(on_diagonal, keys, queries, [&](const AttentionPart& part) HWY_ATTR {
      multiply_by_queries(
          head.k, head, part, queries, work.q_transposed, work.scores, work.products);
      multiply_by_queries(
          head.v, head, part, queries, work.d_out_transposed, work.d_scores, work.products);
      if (draw != nullptr) multiply_by_kept(part, work, work.d_scores);
      softmax_backward(head, mask, hides, part, work);
      if (draw != nullptr) multiply_by_kept(part, work, work.scores);
      multiply_weights(
          head.k, head, part, work.d_scores, sparse || begin > 0, work.sums, work.products);
    });
    // The first block of queries that sees these keys overwrites, unless the sums were cleared.
    const bool accumulate = sparse || !first_head || queries.begin > mask.first_query(keys.begin);
    const auto add_to = [&](float* to, const float* weights, const float* packed) HWY_ATTR {
      multiply_by_weights(
          weights, head, on_diagonal, keys, queries, packed, accumulate, to, work.products);
    };
    add_to(d_v, work.scores, work.d_out);
    add_to(d_k, work.d_scores, work.q);
  }
  std::fill_n(work.total, kBlock, 1.0f);
  store_transposed(work.sums, head, queries, work.total, d_qkv + head.q_offset, head.stride);
}

Range query_block(const graph::AttentionShape& shape, int64_t index) {
  return {index * kBlock, std::min(shape.time, (index + 1) * kBlock)};
}

// Returns the documents of a sample, or null.
const int32_t* documents_of(const graph::AttentionShape& shape,
                            const int32_t* documents,
                            int64_t sample) {
  return documents == nullptr ? nullptr : documents + sample * shape.time;
}

// Clears a head's part of the gradient of k or v.
void clear_head(const AttentionHead& head, float* d) {
  for (int64_t t = 0; t < head.time; ++t) std::fill_n(d + t * head.stride, head.size, 0.0f);
}

// A worker's part of the workspace.
template <typename Op>
AttentionWorker worker_of(const Op& op, int64_t worker) {
  const AttentionScratch sizes = scratch_sizes(op);
  return {reinterpret_cast<float*>(op.workspace) + worker * sizes.floats(), sizes};
}

// Returns how many workers are worth starting for `products` products of all queries with all keys.
int64_t workers_of(const graph::AttentionShape& shape, int64_t products) {
  const int64_t scores = shape.batch * shape.heads * shape.time * shape.time;
  return threads_worth(compute_threads(), products * scores * shape.head_size);
}

void attention_forward_kernel(const graph::AttentionForward<float>& op,
                              const graph::LaneContext& lane) {
  const graph::AttentionShape& shape = op.shape;
  const int64_t workers = workers_of(shape, 2);
  const int64_t blocks = ceil_div(shape.time, kBlock);
  for_each_worker(workers, [&](int64_t index) HWY_ATTR {
    AttentionWorker work = worker_of(op, index);
    const Draw draw(op.dropout, lane);
    const Range mine = share(shape.batch * shape.heads * blocks, 1, index, workers);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
      const AttentionHead head(shape, op.qkv, unit / blocks);
      const Range queries = query_block(shape, unit % blocks);
      const AttentionMask mask(
          shape, documents_of(shape, op.documents, unit / blocks / shape.heads), queries);
      forward_block(head,
                    mask,
                    op.dropout.probability > 0 ? &draw : nullptr,
                    queries,
                    op.y + head.out_offset,
                    op.log_sum_exp + unit / blocks * shape.time,
                    work);
    }
  });
}

void attention_backward_kernel(const graph::AttentionBackward<float>& op,
                               const graph::LaneContext& lane) {
  const graph::AttentionShape& shape = op.shape;
  const int64_t workers = workers_of(shape, 5);
  const int64_t blocks = ceil_div(shape.time, kBlock);
  for_each_worker(workers, [&](int64_t index) HWY_ATTR {
    AttentionWorker work = worker_of(op, index);
    const Draw draw(op.dropout, lane);
    const int64_t group = shape.group();
    const Range mine = share(shape.batch * shape.kv_heads, 1, index, workers);
    for (int64_t unit = mine.begin * group; unit < mine.end * group; ++unit) {
      const AttentionHead head(shape, op.qkv, unit);
      const int32_t* const documents = documents_of(shape, op.documents, unit / shape.heads);
      for (int64_t block = 0; block < blocks; ++block) {
        const Range queries = query_block(shape, block);
        const AttentionMask mask(shape, documents, queries);
        if (mask.sparse() && block == 0 && unit % group == 0) {
          clear_head(head, op.d_qkv + head.k_offset);
          clear_head(head, op.d_qkv + head.v_offset);
        }
        backward_block(head,
                       mask,
                       op.dropout.probability > 0 ? &draw : nullptr,
                       unit % group == 0,
                       queries,
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

size_t workspace_bytes(const AttentionScratch& sizes) {
  return static_cast<size_t>(compute_threads() * sizes.floats()) * sizeof(float);
}

size_t forward_workspace_bytes(const graph::OpCall& op) {
  return workspace_bytes(scratch_sizes(graph::AttentionForward<float>{op}));
}
size_t backward_workspace_bytes(const graph::OpCall& op) {
  return workspace_bytes(scratch_sizes(graph::AttentionBackward<float>{op}));
}

void run_forward(const graph::OpCall& call) {
  HWY_DYNAMIC_DISPATCH(attention_forward_kernel)
  (graph::AttentionForward<float>{call}, call.lane());
}

void run_backward(const graph::OpCall& call) {
  HWY_DYNAMIC_DISPATCH(attention_backward_kernel)
  (graph::AttentionBackward<float>{call}, call.lane());
}

constexpr exec::Implementation kRows[] = {
    row<run_forward, forward_workspace_bytes>(graph::OpKind::kAttention, "blockwise"),
    row<run_backward, backward_workspace_bytes>(graph::OpKind::kAttentionBackward, "blockwise"),
};

}  // namespace

constinit const exec::Implementations kCpuAttention = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

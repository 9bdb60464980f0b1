#include "runtime/graph/ops/attention.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/matmul/tile_units.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/ops/attention_blocks-inl.h"
#include "runtime/cpu/ops/attention_mask-inl.h"
#include "runtime/cpu/ops/attention_softmax-inl.h"
#include "runtime/cpu/ops/attention_tiles-inl.h"
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
// Tensors of bfloat16 are read and written as such. Their products are those of widened numbers, or
// of tiles (attention_tiles-inl.h), for which p and d_s are rounded to bfloat16; everything else,
// and every sum, is in floats.
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

// to (queries, D), row stride `stride`, = the transpose of `sums`, each query's row multiplied by
// factor[query].
template <typename T>
HWY_INLINE void store_transposed(const float* sums,
                                 const AttentionHead<T>& head,
                                 Range queries,
                                 const float* factor,
                                 T* to,
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

// Products: FusedProducts or TileProducts.
template <typename Products, typename T>
HWY_NOINLINE void forward_block(const AttentionHead<T>& head,
                                const AttentionMask& mask,
                                const Draw* draw,
                                Range queries,
                                T* out,
                                float* log_sum_exp,
                                AttentionWorker& work) {
  Products products(head, queries, work);
  products.pack_forward(head.q + queries.begin * head.stride);
  const bool sparse = mask.sparse();
  if (sparse) begin_softmax(head.size, work);
  const auto [first_key, end] = mask.keys(kBlock);
  for (int64_t begin = first_key; begin < end; begin += kBlock) {
    const Range keys{begin, std::min(end, begin + kBlock)};
    const AttentionMask::View view = mask.view(keys);
    if (view == AttentionMask::View::kNothing) continue;
    const bool first = begin == 0 && !sparse;
    if (draw != nullptr) draw_kept(*draw, head, keys, queries, work);
    products.begin(keys);
    products.for_each_part(mask.on_diagonal(keys), [&](const AttentionPart& part) HWY_ATTR {
      products.set_scores(part);
      if (view == AttentionMask::View::kPart) hide_keys(mask, part, work.scores);
      update_softmax(head, part, first, sparse, work);
      if (draw != nullptr) multiply_by_kept(part, work, work.scores);
      products.add_outputs(part, !first);
    });
  }
  end_softmax(head.scale, queries, work);
  std::copy_n(work.maximum, queries.size(), log_sum_exp + queries.begin);
  store_transposed(work.sums, head, queries, work.total, out, head.out_stride);
}

// The dot product of rows of n numbers.
template <typename T>
HWY_INLINE float dot(const T* a, const T* b, int64_t n) {
  RowSum sum;
  for_each_row_vector(static_cast<size_t>(n), [&](size_t i, auto part, auto access) HWY_ATTR {
    sum.add_product(part, access.load(a + i), access.load(b + i));
  });
  return sum.total();
}

// Adds the contributions of one block of queries to those of the keys and values, and writes its
// d_q. The first head of those that share k and v overwrites `to`; with a sparse mask, it begins as
// zeros instead.
template <typename Products, typename T>
HWY_NOINLINE void backward_block(const AttentionHead<T>& head,
                                 const AttentionMask& mask,
                                 const Draw* draw,
                                 bool first_head,
                                 Range queries,
                                 const T* d_out,
                                 const T* out,
                                 const float* log_sum_exp,
                                 T* d_q,
                                 const KeyGradients& to,
                                 AttentionWorker& work) {
  const int64_t count = queries.size();
  const T* const q = head.q + queries.begin * head.stride;
  d_out += queries.begin * head.out_stride;
  out += queries.begin * head.out_stride;
  Products products(head, queries, work);
  products.pack_backward(q, d_out);
  for (int64_t i = 0; i < kBlock; ++i) {  // lanes past the end repeat the last query
    const int64_t query = std::min(i, count - 1);
    work.maximum[i] = log_sum_exp[queries.begin + query];
    work.delta[i] = dot(d_out + query * head.out_stride, out + query * head.out_stride, head.size);
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
    products.begin(keys);
    products.for_each_part(on_diagonal, [&](const AttentionPart& part) HWY_ATTR {
      products.set_scores(part);
      products.set_d_scores(part);
      if (draw != nullptr) multiply_by_kept(part, work, work.d_scores);
      softmax_backward(head.scale, mask, hides, part, work);
      if (draw != nullptr) multiply_by_kept(part, work, work.scores);
      products.add_d_queries(part, sparse || begin > 0);
    });
    // The first block of queries that sees these keys overwrites, unless the sums were cleared.
    products.add_to(
        to, on_diagonal, sparse || !first_head || queries.begin > mask.first_query(keys.begin));
  }
  std::fill_n(work.total, kBlock, 1.0f);
  store_transposed(work.sums, head, queries, work.total, d_q, head.stride);
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

// Where a worker sums the gradients of a head of k and v: in the result, if it is of floats.
KeyGradients gradients_of(const AttentionHead<float>& head, AttentionWorker&, float* d_qkv) {
  return {d_qkv + head.k_offset, d_qkv + head.v_offset, head.stride};
}
KeyGradients gradients_of(const AttentionHead<BFloat16>& head, AttentionWorker& work, BFloat16*) {
  return {work.d_k, work.d_v, round_up(head.size, kMaxPanel)};
}

template <typename T>
void clear(const AttentionHead<T>& head, const KeyGradients& sums) {
  for (float* rows : {sums.k, sums.v}) {
    for (int64_t t = 0; t < head.time; ++t) std::fill_n(rows + t * sums.stride, head.size, 0.0f);
  }
}

// Writes the sums to the result, if they are not there.
HWY_INLINE void store(const AttentionHead<float>&, const KeyGradients&, float*) {}
HWY_INLINE void store(const AttentionHead<BFloat16>& head,
                      const KeyGradients& sums,
                      BFloat16* d_qkv) {
  const auto round = [&](const float* from, BFloat16* to) HWY_ATTR {
    for (int64_t t = 0; t < head.time; ++t, from += sums.stride, to += head.stride) {
      for_each_vector(static_cast<size_t>(head.size), [&](size_t d, auto access) HWY_ATTR {
        access.store(access.load(from + d), to + d);
      });
    }
  };
  round(sums.k, d_qkv + head.k_offset);
  round(sums.v, d_qkv + head.v_offset);
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

template <typename Products, typename T>
HWY_INLINE void forward(const graph::AttentionForward<T>& op, const graph::LaneContext& lane) {
  const graph::AttentionShape& shape = op.shape;
  const int64_t workers = workers_of(shape, 2);
  const int64_t blocks = ceil_div(shape.time, kBlock);
  for_each_worker(workers, [&](int64_t index) HWY_ATTR {
    AttentionWorker work = worker_of(op, index);
    const Draw draw(op.dropout, lane);
    const Range mine = share(shape.batch * shape.heads * blocks, 1, index, workers);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
      const AttentionHead<T> head(shape, op.qkv, unit / blocks);
      const Range queries = query_block(shape, unit % blocks);
      const AttentionMask mask(
          shape, documents_of(shape, op.documents, unit / blocks / shape.heads), queries);
      forward_block<Products>(head,
                              mask,
                              op.dropout.probability > 0 ? &draw : nullptr,
                              queries,
                              op.y + head.out_offset,
                              op.log_sum_exp + unit / blocks * shape.time,
                              work);
    }
  });
}

template <typename Products, typename T>
HWY_INLINE void backward(const graph::AttentionBackward<T>& op, const graph::LaneContext& lane) {
  const graph::AttentionShape& shape = op.shape;
  const int64_t workers = std::min(workers_of(shape, 5), backward_units(shape));
  const int64_t blocks = ceil_div(shape.time, kBlock);
  for_each_worker(workers, [&](int64_t index) HWY_ATTR {
    AttentionWorker work = worker_of(op, index);
    const Draw draw(op.dropout, lane);
    const int64_t group = shape.group();
    const Range mine = share(backward_units(shape), 1, index, workers);
    for (int64_t unit = mine.begin * group; unit < mine.end * group; ++unit) {
      const AttentionHead<T> head(shape, op.qkv, unit);
      const int32_t* const documents = documents_of(shape, op.documents, unit / shape.heads);
      const KeyGradients sums = gradients_of(head, work, op.d_qkv);
      for (int64_t block = 0; block < blocks; ++block) {
        const Range queries = query_block(shape, block);
        const AttentionMask mask(shape, documents, queries);
        if (mask.sparse() && block == 0 && unit % group == 0) clear(head, sums);
        backward_block<Products>(head,
                                 mask,
                                 op.dropout.probability > 0 ? &draw : nullptr,
                                 unit % group == 0,
                                 queries,
                                 op.d_y + head.out_offset,
                                 op.y + head.out_offset,
                                 op.log_sum_exp + unit * shape.time,
                                 op.d_qkv + head.q_offset,
                                 sums,
                                 work);
      }
      if (unit % group == group - 1) store(head, sums, op.d_qkv);
    }
  });
}

// Calls f(op, the type of its products).
template <template <typename> class Op, typename F>
HWY_INLINE void with_products(AnyStored<Op> stored, bool tiles, F f) {
  stored.with([&]<typename T>(const Op<T>& op) HWY_ATTR {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (tiles) return f(op, std::type_identity<TileProducts>());
    }
    f(op, std::type_identity<FusedProducts<T>>());
  });
}

void attention_forward_kernel(AnyStored<graph::AttentionForward> stored,
                              const graph::LaneContext& lane,
                              bool tiles) {
  with_products(stored, tiles, [&]<typename P>(const auto& op, std::type_identity<P>) HWY_ATTR {
    forward<P>(op, lane);
  });
}

void attention_backward_kernel(AnyStored<graph::AttentionBackward> stored,
                               const graph::LaneContext& lane,
                               bool tiles) {
  with_products(stored, tiles, [&]<typename P>(const auto& op, std::type_identity<P>) HWY_ATTR {
    backward<P>(op, lane);
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

size_t workspace_bytes(int64_t workers, const AttentionScratch& sizes) {
  return static_cast<size_t>(workers * sizes.floats()) * sizeof(float);
}

template <typename T>
size_t forward_bytes(const graph::AttentionForward<T>& op) {
  return workspace_bytes(compute_threads(), scratch_sizes(op));
}
template <typename T>
size_t backward_bytes(const graph::AttentionBackward<T>& op) {
  const int64_t threads = compute_threads();
  return workspace_bytes(
      std::is_same_v<T, float> ? threads : std::min(threads, backward_units(op.shape)),
      scratch_sizes(op));
}

size_t forward_workspace_bytes(const graph::OpCall& op) {
  return stores_bf16(op) ? forward_bytes<BFloat16>({op}) : forward_bytes<float>({op});
}
size_t backward_workspace_bytes(const graph::OpCall& op) {
  return stores_bf16(op) ? backward_bytes<BFloat16>({op}) : backward_bytes<float>({op});
}

template <typename T, bool kTiles = false>
void run_forward(const graph::AttentionForward<T>& op) {
  HWY_DYNAMIC_DISPATCH(attention_forward_kernel)(op, op.call.lane(), kTiles);
}
template <typename T, bool kTiles = false>
void run_backward(const graph::AttentionBackward<T>& op) {
  HWY_DYNAMIC_DISPATCH(attention_backward_kernel)(op, op.call.lane(), kTiles);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward<BFloat16, /*kTiles=*/true>,
              forward_workspace_bytes,
              stores_bf16,
              tiles::available_for>(graph::OpKind::kAttention, "tiles"),
    native_row<run_forward<float>, run_forward<BFloat16>, forward_workspace_bytes>(
        graph::OpKind::kAttention, "blockwise"),
    exec::row<run_backward<BFloat16, /*kTiles=*/true>,
              backward_workspace_bytes,
              stores_bf16,
              tiles::available_for>(graph::OpKind::kAttentionBackward, "tiles"),
    native_row<run_backward<float>, run_backward<BFloat16>, backward_workspace_bytes>(
        graph::OpKind::kAttentionBackward, "blockwise"),
};

}  // namespace

constinit const exec::Implementations kCpuAttention = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

#pragma once
// cached_attention: causal attention for inference in which tokens arrive one or several at a time.
// A cache keeps the keys and values of earlier tokens from run to run. Computes, token by token,
// the same as attention: softmax(q k^T / sqrt(D) [window]) v.
// P = (H + 2 K) D as in attention. The cache has room for T tokens of each sequence: for each of K
// heads the keys, transposed, (D, T), then for each head the values (T, D). The new cache is the
// cache with the keys and values of the S tokens stored at their positions. Usually both are the
// same memory, and only these are written. A token at position p attends to positions 0 to p of the
// new cache or, with a window, to the last `window` of these. If a token's document is negative, or
// its position is not in [0, T), it is padding: it stores nothing, and its y is 0.
//
// Each score is one chain of sums over D, and y one chain over the keys, so bits do not depend on
// S, T or B.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class CachedAttentionIn : InputIndex { kQkv, kDocuments, kPositions, kCache };
enum class CachedAttentionOut : OutputIndex { kY, kNewCache };

struct CachedAttentionAttributes {
  int64_t heads = 1;
  int64_t kv_heads = heads;  // of k and v; a divisor of heads
  int64_t window = 0;        // tokens; 0: no limit
};

namespace ops {

// qkv (B, S, P) -> (B, S, H D). If `cache` is a state of the graph, it is also the new cache.
TensorId cached_attention(GraphBuilder& builder,
                          const std::string& name,
                          TensorId qkv,
                          TensorId documents,
                          TensorId positions,
                          TensorId cache,
                          const CachedAttentionAttributes& attributes);

}  // namespace ops

template <typename T>
struct CachedAttention {
  const OpCall& call = OpCall::none();
  int64_t batch = call.input_shape(CachedAttentionIn::kQkv)[0];   // B
  int64_t tokens = call.input_shape(CachedAttentionIn::kQkv)[1];  // S
  int64_t heads = call.attributes<CachedAttentionAttributes>().heads;
  int64_t kv_heads = call.attributes<CachedAttentionAttributes>().kv_heads;
  int64_t head_size = call.input_shape(CachedAttentionIn::kQkv)[2] / (heads + 2 * kv_heads);
  int64_t room = call.input_shape(CachedAttentionIn::kCache)[2] / head_size;  // T
  int64_t window = call.attributes<CachedAttentionAttributes>().window;
  const T* qkv = call.input<T>(CachedAttentionIn::kQkv);  // (B, S, P)
  // (B, S), negative: padding
  const int32_t* documents = call.input<int32_t>(CachedAttentionIn::kDocuments);
  const int32_t* positions = call.input<int32_t>(CachedAttentionIn::kPositions);  // (B, S)
  const T* cache = call.input<T>(CachedAttentionIn::kCache);                      // (B, 2 K, T D)
  T* y = call.output<T>(CachedAttentionOut::kY);                                  // (B, S, H D)
  T* new_cache = call.output<T>(CachedAttentionOut::kNewCache);  // (B, 2 K, T D). May be the cache
  std::byte* workspace = call.workspace();                       // as the implementation needs

  constexpr int64_t group() const { return heads / kv_heads; }
  constexpr int64_t packed_width() const { return (heads + 2 * kv_heads) * head_size; }
  constexpr int64_t cache_elements() const { return batch * 2 * kv_heads * room * head_size; }
  // The position of token s of sample b, or -1 for padding.
  constexpr int64_t position(int64_t b, int64_t s) const {
    const int64_t at = positions[b * tokens + s];
    return documents[b * tokens + s] < 0 || at < 0 || at >= room ? -1 : at;
  }
  // The first key to which a token at a position attends.
  constexpr int64_t first_key(int64_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  // For one of the K heads of a sample: keys (D, T) and values (T, D).
  constexpr T* keys(int64_t b, int64_t head) const {
    return new_cache + (b * 2 * kv_heads + head) * room * head_size;
  }
  constexpr T* values(int64_t b, int64_t head) const { return keys(b, kv_heads + head); }
};

}  // namespace lockstep::graph

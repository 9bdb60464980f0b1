#pragma once
// attention: per head, dropout(softmax(q k^T / sqrt(D) [masks])) v, blockwise. With grouped
// queries, groups of H / K heads share a head of k and v (Ainslie et al. 2023); otherwise K = H.
// A token's P = (H + 2 K) D elements are its H heads of q, K of k and K of v.
//
// What a token attends to:
//   causal     itself and the tokens before it; otherwise all
//   window     of these only those less than `window` positions away (sliding window attention,
//              Beltagy et al. 2020; Mistral): with `causal`, itself and window - 1 before it.
//              0: no limit
//   documents  of these only those of its own document, by number. A token with a negative number
//              is padding: it attends to nothing and nothing attends to it; its y, log_sum_exp and
//              gradient are 0. With `padding_sees`, it attends to the tokens of document 0
//
// With `one_document`, a sample's documents are 0 for some first tokens and negative for the rest.
// So they only say how long the sample is, which more implementations support.
//
// Dropout sets a probability to 0 if its word of the random stream (seed, step, lane, the op's
// number) is below the threshold, and multiplies the others by 1 / (1 - dropout). log_sum_exp
// belongs to the probabilities before dropout. The index of the word depends on the pair of tokens:
// see AttentionDropout.

#include <compare>
#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/base/rng.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

// Documents may be absent.
enum class AttentionIn : InputIndex { kQkv, kDocuments };
enum class AttentionOut : OutputIndex { kY, kLogSumExp };
enum class AttentionBackwardIn : InputIndex { kDY, kQkv, kY, kLogSumExp, kDocuments };
enum class AttentionBackwardOut : OutputIndex { kDQkv };

struct AttentionAttributes {
  int64_t heads = 1;
  bool causal = true;
  int64_t kv_heads = heads;  // of k and v; a divisor of heads
  int64_t window = 0;        // tokens; 0: no limit
  float dropout = 0;         // of probabilities, in [0, 1)
  uint32_t stream = 0;       // number of the op's random stream; ops::attention sets it
  bool padding_sees = false;
  bool one_document = false;
};

namespace ops {

// Self-attention over packed qkv (B, T, P) -> (B, T, H D), scores scaled by 1/sqrt(D). documents
// (B, T) i32 may be kNoTensor. Dropout is applied only in training.
TensorId attention(GraphBuilder& builder,
                   const std::string& name,
                   TensorId qkv,
                   const AttentionAttributes& attributes,
                   TensorId documents = kNoTensor);

}  // namespace ops

// Sets AttentionAttributes::one_document of all attention with documents: each sample has at most
// one document, at its front, and the rest is padding.
void set_one_document(Graph& graph);

// B samples of T tokens, H heads of size D, K heads of k and v. Each >= 1.
struct AttentionShape {
  int64_t batch, time, heads, head_size;
  bool causal;  // token t attends to tokens 0..t; otherwise to all
  int64_t kv_heads = heads;
  int64_t window = 0;  // tokens at this distance or farther are not attended to; 0: no limit
  bool padding_sees = false;

  // For qkv (B, T, P). A window that excludes nothing becomes 0.
  static AttentionShape of(const Shape& qkv, const AttentionAttributes& attributes) {
    const int64_t head_size = qkv[2] / (attributes.heads + 2 * attributes.kv_heads);
    return {.batch = qkv[0],
            .time = qkv[1],
            .heads = attributes.heads,
            .head_size = head_size,
            .causal = attributes.causal,
            .kv_heads = attributes.kv_heads,
            .window = attributes.window < qkv[1] ? attributes.window : 0,
            .padding_sees = attributes.padding_sees};
  }

  // The keys that a query may attend to, and the queries that may attend to a key: [first, end).
  // Documents may exclude some of them.
  constexpr int64_t first_key(int64_t query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  constexpr int64_t keys_end(int64_t query) const {
    if (causal) return query + 1;
    return window > 0 && query + window < time ? query + window : time;
  }
  constexpr int64_t first_query(int64_t key) const { return causal ? key : first_key(key); }
  constexpr int64_t queries_end(int64_t key) const {
    return window > 0 && key + window < time ? key + window : time;
  }
  constexpr bool reaches(int64_t query, int64_t key) const {
    return key >= first_key(query) && key < keys_end(query);
  }

  // The document that a token attends to, given its own number; below 0: none.
  constexpr int32_t seen_document(int32_t number) const {
    return number < 0 && padding_sees ? 0 : number;
  }

  // heads that share one head of k and v
  constexpr int64_t group() const { return heads / kv_heads; }
  constexpr int64_t width() const { return heads * head_size; }
  constexpr int64_t kv_width() const { return kv_heads * head_size; }
  constexpr int64_t packed_width() const { return width() + 2 * kv_width(); }
  auto operator<=>(const AttentionShape&) const = default;
};

// Which probabilities are dropped.
struct AttentionDropout {
  float probability = 0;
  uint32_t purpose = 0;  // of the RngStream; the lane gives the other fields

  static AttentionDropout of(const AttentionAttributes& attributes) {
    return {attributes.dropout, kRngDropout | attributes.stream};
  }
  // The index of a pair's word. `head` counts the heads of all samples. Neighbouring queries are
  // adjacent, so a block of four words belongs to one key and four consecutive queries from a
  // multiple of four.
  LOCKSTEP_HD static uint64_t word(int64_t time, int64_t head, int64_t key, int64_t query) {
    return static_cast<uint64_t>((head * time + key) * ((time + 3) / 4 * 4) + query);
  }
};

template <typename T>
struct AttentionForward {
  const OpCall& call = OpCall::none();
  AttentionShape shape = AttentionShape::of(call.input_shape(AttentionIn::kQkv),
                                            call.attributes<AttentionAttributes>());
  AttentionDropout dropout = AttentionDropout::of(call.attributes<AttentionAttributes>());
  // (B, T, P): q (H, D), k (K, D) and v (K, D) after each other
  const T* qkv = call.input<T>(AttentionIn::kQkv);
  // (B, T), negative: padding; or null
  const int32_t* documents = call.input<int32_t>(AttentionIn::kDocuments);
  T* y = call.output<T>(AttentionOut::kY);  // (B, T, H D)
  // (B, H, T) the logarithm of the softmax's denominator
  Wide<T>* log_sum_exp = call.output<Wide<T>>(AttentionOut::kLogSumExp);
  std::byte* workspace = call.workspace();  // as the implementation needs
};

template <typename T>
struct AttentionBackward {
  const OpCall& call = OpCall::none();
  AttentionShape shape = AttentionShape::of(call.input_shape(AttentionBackwardIn::kQkv),
                                            call.attributes<AttentionAttributes>());
  AttentionDropout dropout = AttentionDropout::of(call.attributes<AttentionAttributes>());
  const T* d_y = call.input<T>(AttentionBackwardIn::kDY);                             // (B, T, H D)
  const T* qkv = call.input<T>(AttentionBackwardIn::kQkv);                            // (B, T, P)
  const T* y = call.input<T>(AttentionBackwardIn::kY);                                // (B, T, H D)
  const Wide<T>* log_sum_exp = call.input<Wide<T>>(AttentionBackwardIn::kLogSumExp);  // (B, H, T)
  // (B, T), negative: padding; or null
  const int32_t* documents = call.input<int32_t>(AttentionBackwardIn::kDocuments);
  T* d_qkv = call.output<T>(AttentionBackwardOut::kDQkv);  // (B, T, P)
  std::byte* workspace = call.workspace();                 // as the implementation needs
};

}  // namespace lockstep::graph

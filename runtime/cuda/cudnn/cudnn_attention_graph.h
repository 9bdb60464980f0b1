#pragma once
// The graph of attention. Only cudnn_graphs.cc includes this.

#include <cmath>
#include <vector>

#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_frontend_graph.h"

namespace lockstep::cuda {

// Ids of the arrays in a graph of attention.
enum AttentionUid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStats,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kQueryLengths,
  kKeyLengths
};

// Builds the graph of one pass.
class AttentionBuilder {
 public:
  AttentionBuilder(const CudnnAttentionKey& key, int sm)
      : key_(key), graph_(new_graph(key.dtype, sm)) {}

  Graph build() {
    key_.backward ? backward() : forward();
    return graph_;
  }

 private:
  std::vector<int64_t> dimensions(AttentionUid uid) const {
    const graph::AttentionShape& s = key_.shape;
    const bool of_keys = uid == kK || uid == kV || uid == kDK || uid == kDV;
    return {s.batch, of_keys ? s.kv_heads : s.heads, s.time, s.head_size};
  }
  // Strides of q, k or v within (B, T, P), or of an array (B, T, H, D).
  std::vector<int64_t> strides(AttentionUid uid) const {
    const graph::AttentionShape& s = key_.shape;
    const int64_t row = uid == kOut || uid == kDOut ? s.width() : s.packed_width();
    return {s.time * row, s.head_size, row, 1};
  }
  Tensor input(AttentionUid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim(dimensions(uid))
                              .set_stride(strides(uid)));
  }
  void output(const Tensor& tensor, AttentionUid uid) const {
    tensor->set_output(true).set_uid(uid).set_dim(dimensions(uid)).set_stride(strides(uid));
  }
  std::vector<int64_t> stats_dimensions() const {
    return {key_.shape.batch, key_.shape.heads, key_.shape.time, 1};
  }
  std::vector<int64_t> stats_strides() const {
    return {key_.shape.heads * key_.shape.time, key_.shape.time, 1, 1};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(key_.shape.head_size)); }

  // Masks of either pass. cuDNN counts from the diagonal: a query attends to keys that lie less
  // than `left` before it and at most `right` behind it (AttentionShape::first_key, keys_end).
  template <typename Attributes>
  void add_masks(Attributes& attributes) {
    const graph::AttentionShape& s = key_.shape;
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
    if (s.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(s.window));
    if (s.causal)
      attributes.set_diagonal_band_right_bound(0);
    else if (s.window > 0)
      attributes.set_diagonal_band_right_bound(static_cast<int>(s.window - 1));
    if (key_.padded)
      attributes.set_padding_mask(true)
          .set_seq_len_q(lengths(kQueryLengths))
          .set_seq_len_kv(lengths(kKeyLengths));
  }
  Tensor lengths(AttentionUid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_data_type(fe::DataType_t::INT32)
                              .set_dim({key_.shape.batch, 1, 1, 1})
                              .set_stride({1, 1, 1, 1}));
  }

  void forward() {
    auto attributes = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(scale());
    add_masks(attributes);
    const auto [out, stats] = graph_->sdpa(input(kQ), input(kK), input(kV), attributes);
    output(out, kOut);
    stats->set_output(true)
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(stats_dimensions())
        .set_stride(stats_strides());
  }

  void backward() {
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_attn_scale(scale()).set_deterministic_algorithm(
            true);
    add_masks(attributes);
    const Tensor stats = graph_->tensor(fe::graph::Tensor_attributes()
                                            .set_uid(kStats)
                                            .set_data_type(fe::DataType_t::FLOAT)
                                            .set_dim(stats_dimensions())
                                            .set_stride(stats_strides()));
    const auto [d_q, d_k, d_v] = graph_->sdpa_backward(
        input(kQ), input(kK), input(kV), input(kOut), input(kDOut), stats, attributes);
    output(d_q, kDQ);
    output(d_k, kDK);
    output(d_v, kDV);
  }

  const CudnnAttentionKey key_;
  const Graph graph_;
};

inline Graph make_graph(const CudnnAttentionKey& key, int sm) {
  return AttentionBuilder(key, sm).build();
}

// All engines are acceptable, because the graph itself asks for a fixed order. Their notes would
// not tell: cuDNN 9.19 notes no engine of attention as nondeterministic, whatever was asked.
inline void choose_engines(const CudnnAttentionKey&, fe::graph::Graph&) {}

inline int64_t max_workspace_bytes(const CudnnAttentionKey& key) {
  return static_cast<int64_t>(cudnn_attention_workspace_bytes(key));
}

inline const char* name_of_pass(const CudnnAttentionKey&) { return "attention"; }

inline Pack pack_arrays(const CudnnAttentionKey& key, const CudnnAttentionArrays& arrays) {
  const int64_t k = key.shape.width(), v = k + key.shape.kv_width();
  const auto part = [&](const void* packed, int64_t first) {
    const auto bytes = static_cast<size_t>(first) * size_of(key.dtype);
    return const_cast<std::byte*>(static_cast<const std::byte*>(packed)) + bytes;
  };
  Pack pack = {{kQ, part(arrays.qkv, 0)},
               {kK, part(arrays.qkv, k)},
               {kV, part(arrays.qkv, v)},
               {kOut, arrays.out},
               {kStats, arrays.log_sum_exp}};
  if (key.padded) {
    pack[kQueryLengths] = const_cast<int32_t*>(arrays.query_lengths);
    pack[kKeyLengths] = const_cast<int32_t*>(arrays.key_lengths);
  }
  if (key.backward) {
    pack[kDOut] = const_cast<void*>(arrays.d_out);
    pack[kDQ] = part(arrays.d_qkv, 0);
    pack[kDK] = part(arrays.d_qkv, k);
    pack[kDV] = part(arrays.d_qkv, v);
  }
  return pack;
}

}  // namespace lockstep::cuda

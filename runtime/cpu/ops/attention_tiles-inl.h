// The products of attention of bfloat16 by the tiles of bf16x3.h (see attention.cc). Compiled once
// per instruction set: see simd-inl.h.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_TILES_INL_H
#undef LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_TILES_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_TILES_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/matmul/bf16x3_operands.h"
#include "runtime/cpu/ops/attention_blocks-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// As FusedProducts. The weights of the second products, p and d_s, are rounded to bfloat16. All
// operands are padded with zeros: rows to full tiles, columns to pairs of tiles.
class TileProducts {
 public:
  using T = BFloat16;

  TileProducts(const AttentionHead<T>& head, Range queries, AttentionWorker& work)
      : head_(head), queries_(queries), work_(work) {}

  void pack_forward(const T* q) { pack_columns(q, head_.stride, work_.q_transposed); }
  void pack_backward(const T* q, const T* d_out) {
    pack_forward(q);
    pack_columns(d_out, head_.out_stride, work_.d_out_transposed);
    pack_depth(q, head_.stride, work_.q);
    pack_depth(d_out, head_.out_stride, work_.d_out);
  }

  void begin(Range keys) { keys_ = keys; }

  // There is one part: tiles on the diagonal take less time than what depends on the mask.
  template <typename Body>
  HWY_INLINE void for_each_part(bool /*on_diagonal*/, Body&& body) const {
    body(AttentionPart{0, padded(queries_), keys_});
  }

  void set_scores(const AttentionPart&) {
    multiply_by_queries(head_.k, work_.q_transposed, work_.scores);
  }
  void set_d_scores(const AttentionPart&) {
    multiply_by_queries(head_.v, work_.d_out_transposed, work_.d_scores);
  }
  HWY_INLINE void add_outputs(const AttentionPart&, bool accumulate) {
    multiply_weights(head_.v, work_.scores, accumulate);
  }
  HWY_INLINE void add_d_queries(const AttentionPart&, bool accumulate) {
    multiply_weights(head_.k, work_.d_scores, accumulate);
  }
  HWY_INLINE void add_to(const KeyGradients& to, bool /*on_diagonal*/, bool accumulate) {
    multiply_by_weights(work_.scores, work_.d_out, accumulate, to.v, to.stride);
    multiply_by_weights(work_.d_scores, work_.q, accumulate, to.k, to.stride);
  }

 private:
  static constexpr int64_t kElems = kTileElems<T>;
  static constexpr int64_t kPair = 2 * kTileEdge;  // columns of two tiles

  // Tiles lie in memory of floats, of which they need half.
  static uint16_t* halves(float* memory) { return reinterpret_cast<uint16_t*>(memory); }

  static int64_t tiles(int64_t size) { return ceil_div(size, kTileEdge); }
  static int64_t pairs(int64_t size) { return ceil_div(size, kPair); }
  static int64_t chunks(int64_t depth) { return ceil_div(depth, kTileDepth); }

  // Pointers to up to kMax of the block's rows, from `first` on, at column d.
  template <int64_t kMax>
  static RowPointers<kMax, T> rows_at(
      const T* rows, int64_t stride, int64_t first, int64_t count, int64_t d) {
    return {rows + first * stride + d, stride, std::clamp<int64_t>(count - first, 0, kMax)};
  }

  // B (D, queries) from rows (queries, D).
  void pack_columns(const T* rows, int64_t stride, float* to) const {
    const int64_t of_pair = chunks(head_.size) * 2 * kElems;
    for (int64_t tile = 0; tile < 2 * pairs(queries_.size()); ++tile) {
      const auto some = rows_at<kTileEdge>(rows, stride, tile * kTileEdge, queries_.size(), 0);
      kernels_.pack_rows_as_columns(
          some.rows, head_.size, halves(to) + tile / 2 * of_pair + tile % 2 * kElems, 2 * kElems);
    }
  }

  // B (queries, D) from rows (queries, D).
  void pack_depth(const T* rows, int64_t stride, float* to) const {
    uint16_t* next = halves(to);
    for (int64_t d = 0; d < pairs(head_.size) * kPair; d += kPair) {
      for (int64_t query = 0; query < queries_.size(); query += kTileDepth) {
        for (int64_t at = d; at < d + kPair; at += kTileEdge, next += kElems) {
          const int64_t columns = std::clamp<int64_t>(head_.size - at, 0, kTileEdge);
          const auto some = rows_at<kTileDepth>(
              rows, stride, query, columns > 0 ? queries_.size() : 0, columns > 0 ? at : 0);
          kernels_.pack_depth(some.rows, columns, next);
        }
      }
    }
  }

  // c (rows, columns) = or += a (rows, depth) b (depth, columns).
  void multiply(int64_t rows,
                int64_t columns,
                int64_t depth,
                float* a,
                float* b,
                float* c,
                int64_t stride,
                bool accumulate) const {
    for (int64_t pair = 0; pair < pairs(columns); ++pair)
      kernels_.multiply({.row_tiles = tiles(rows),
                         .column_tiles = 2,
                         .chunks = chunks(depth),
                         .a = halves(a),
                         .a_stride = chunks(depth) * kElems,
                         .b = halves(b) + pair * chunks(depth) * 2 * kElems,
                         .c = c + pair * kPair,
                         .c_stride = stride,
                         .accumulate = accumulate});
  }

  // to (keys, queries) = rows (keys, D) b (D, queries).
  void multiply_by_queries(const T* rows, float* b, float* to) const {
    rows += keys_.begin * head_.stride;
    for (int64_t tile = 0; tile < tiles(keys_.size()); ++tile) {
      const auto some = rows_at<kTileEdge>(rows, head_.stride, tile * kTileEdge, keys_.size(), 0);
      const TileKernels<T>::Split split = {
          some.rows, 0, head_.size, halves(work_.k) + tile * chunks(head_.size) * kElems, kElems};
      kernels_.split_rows(&split, 1);
    }
    multiply(keys_.size(), queries_.size(), head_.size, work_.k, b, to, kBlock, false);
  }

  // sums (D, queries) = or += rows^T (D, keys) weights (keys, queries).
  HWY_INLINE void multiply_weights(const T* rows, const float* weights, bool accumulate) {
    rows += keys_.begin * head_.stride;
    uint16_t* next = halves(work_.k);
    for (int64_t d = 0; d < head_.size; d += kTileEdge) {
      for (int64_t key = 0; key < keys_.size(); key += kTileDepth, next += kElems) {
        const auto some = rows_at<kTileDepth>(rows, head_.stride, key, keys_.size(), d);
        kernels_.pack_depth_as_rows(some.rows, std::min(kTileEdge, head_.size - d), next);
      }
    }
    pack_weights_as_depth(weights);
    multiply(head_.size,
             queries_.size(),
             keys_.size(),
             work_.k,
             work_.v,
             work_.sums,
             kBlock,
             accumulate);
  }

  // to (keys, D) = or += weights (keys, queries) b (queries, D).
  HWY_INLINE void multiply_by_weights(
      const float* weights, float* b, bool accumulate, float* to, int64_t stride) {
    pack_weights_as_rows(weights);
    multiply(keys_.size(),
             head_.size,
             queries_.size(),
             work_.v,
             b,
             to + keys_.begin * stride,
             stride,
             accumulate);
  }

  // A vector of weights, as bits of which the upper halves count; zeros past the last key.
  HWY_INLINE half::Bits rounded(const float* weights, int64_t key, int64_t lane) const {
    if (key >= keys_.size()) return half::bits(0);
    const Vec values = hn::Load(F32(), weights + key * kBlock + lane);
    return half::bits_of(half::AsBF16::round(values));
  }

  // work.v = B (keys, queries): pairs of keys, interleaved.
  HWY_INLINE void pack_weights_as_depth(const float* weights) {
    const int64_t depth = chunks(keys_.size()) * kTileDepth;
    auto* const to = reinterpret_cast<uint32_t*>(work_.v);
    for (int64_t key = 0; key < depth; key += 2) {
      for (int64_t lane = 0; lane < pairs(queries_.size()) * kPair; lane += kVecLanes) {
        const auto even = rounded(weights, key, lane), odd = rounded(weights, key + 1, lane);
        const int64_t tile = lane / kPair * chunks(keys_.size()) * 2 + key / kTileDepth * 2 +
                             lane % kPair / kTileEdge;
        hn::StoreU(hn::Or(hn::ShiftRight<16>(even), hn::And(odd, half::bits(0xffff0000))),
                   U32(),
                   to + tile * kElems / 2 + key % kTileDepth / 2 * kTileEdge + lane % kTileEdge);
      }
    }
  }

  // work.v = A (keys, queries).
  HWY_INLINE void pack_weights_as_rows(const float* weights) {
    const int64_t count = queries_.size();
    for (int64_t key = 0; key < tiles(keys_.size()) * kTileEdge; ++key) {
      uint16_t* const to =
          halves(work_.v) + (key / kTileEdge * chunks(count) * kTileEdge + key % kTileEdge) *
                                kTileDepth;  // of the row in the first of its tiles
      for (int64_t lane = 0; lane < count; lane += kVecLanes)
        half::store(hn::ShiftRight<16>(rounded(weights, key, lane)),
                    to + lane / kTileDepth * kElems + lane % kTileDepth);
      for (int64_t lane = count; lane < chunks(count) * kTileDepth; ++lane)
        to[lane / kTileDepth * kElems + lane % kTileDepth] = 0;
    }
  }

  const TileKernels<T>& kernels_ = tile_kernels<T>();
  const AttentionHead<T>& head_;
  Range queries_, keys_{};
  AttentionWorker& work_;  // k and v have tiles
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_ATTENTION_TILES_INL_H

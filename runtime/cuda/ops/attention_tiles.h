#pragma once
// How the attention kernels for floats divide the rows among threads and read tiles of the other
// rows, and which of these a row sees. Only attention.cu includes this.
//
// A block handles kRows = kThreads / kSharers rows of one head: queries, or keys in the gradients
// of keys and values. kSharers neighbouring threads share a row, and each keeps kPart of its D
// elements in registers, so that long rows fit. The rows of the other kind go by in tiles of
// kTileRows in shared memory, which all rows of the block use:
//
//                elements of D ->                                     D ->
//    row 0     | thread 0 | thread 1 | ... |            other row 0 |         |
//    row 1     | thread s | thread s+1 | ... |    x     ...         |  tile   |  next tile ...
//    ...          (s = kSharers)                        kTileRows-1 |         |
//
// A score is the dot product of a row with a row of the tile: each thread multiplies its part, and
// a butterfly of shuffles adds the parts. All sharers get the same bits, so they take the same
// branches (the mask, a new maximum), and each then updates its own part of the sums.
//
// Masks skip work at two levels. keys_of_block() and queries_of_block() give the range of tiles in
// reach of the block (causal mask, window), and has_tile() skips tiles that have none of the
// block's documents. reaches() and same_document() then decide for each pair of rows.

#include <cstdint>
#include <limits>

#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/attention_arrays.h"

namespace lockstep::cuda::attention_tiles {

inline constexpr int kThreads = 128;

// How rows are split: Sharers neighbouring threads share a row, and each holds Part of its D
// elements, padded with zeros. A shared tile has rows of kWidth floats.
template <int Part, int Sharers>
struct Split {
  static constexpr int kPart = Part, kSharers = Sharers, kWidth = Part * Sharers;
  static constexpr int kRows = kThreads / Sharers;
  static constexpr int kTileRows = kWidth <= 128 ? 32 : 16;
  // How far the loop over a tile is unrolled; limited by the registers.
  static constexpr int kUnroll = Part <= 16 ? 2 : 1;
};

// A thread's position: sample, head, its row and the first of its elements.
struct ThreadPosition {
  int sample, head, row, first;
  bool inside;  // the row is one of the T tokens

  __device__ __forceinline__ ThreadPosition of_head(int other) const {
    return {sample, other, row, first, inside};
  }
  // The same for the head of k and v that this head uses.
  __device__ __forceinline__ ThreadPosition of_keys(const graph::AttentionShape& shape) const {
    return of_head(head / static_cast<int>(shape.group()));
  }
  // Index of the head among the heads of all samples.
  __device__ __forceinline__ int64_t number(const graph::AttentionShape& shape) const {
    return sample * shape.heads + head;
  }
  // Offset of the head's first token in an array (B, H, T).
  __device__ __forceinline__ int64_t statistics(const graph::AttentionShape& shape) const {
    return number(shape) * shape.time;
  }
};
// heads: per sample; each has a row of blocks. Blocks that a tall grid has past the last head
// repeat that head's work, with the same bits: skipping them would cost registers.
template <typename S>
__device__ __forceinline__ ThreadPosition thread_position(const graph::AttentionShape& shape,
                                                          int64_t heads) {
  const int row = static_cast<int>(blockIdx.x * S::kRows + threadIdx.x / S::kSharers);
  const auto number = static_cast<unsigned>(block_down()),
             last = static_cast<unsigned>(shape.batch * heads) - 1;
  const unsigned head = number < last ? number : last;
  return {static_cast<int>(head / static_cast<unsigned>(heads)),
          static_cast<int>(head % static_cast<unsigned>(heads)),
          row,
          static_cast<int>(threadIdx.x % S::kSharers) * S::kPart,
          row < shape.time};
}

// Row t of the head at `at`.
template <typename T>
__device__ __forceinline__ T* token_row(const Tokens<T>& tokens,
                                        const graph::AttentionShape& shape,
                                        const ThreadPosition& at,
                                        int64_t t) {
  return tokens.data + (at.sample * shape.time + t) * tokens.stride + at.head * shape.head_size;
}

// Reads the thread's part of a row; zeros beyond D, or if the row is not inside.
template <typename S>
__device__ __forceinline__ void read_part(const Tokens<const float>& tokens,
                                          const graph::AttentionShape& shape,
                                          const ThreadPosition& at,
                                          float (&part)[S::kPart]) {
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) {
    const bool exists = at.inside && at.first + i < shape.head_size;
    part[i] = exists ? token_row(tokens, shape, at, at.row)[at.first + i] : 0;
  }
}

template <typename S>
__device__ __forceinline__ void write_part(const float (&part)[S::kPart],
                                           const Tokens<float>& tokens,
                                           const graph::AttentionShape& shape,
                                           const ThreadPosition& at) {
  if (!at.inside) return;
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) {
    if (at.first + i < shape.head_size)
      token_row(tokens, shape, at, at.row)[at.first + i] = part[i];
  }
}

// All threads of the block copy rows [begin, begin + kTileRows) into `tile`, zeros outside.
template <typename S>
__device__ __forceinline__ void read_tile(const Tokens<const float>& tokens,
                                          const graph::AttentionShape& shape,
                                          const ThreadPosition& at,
                                          int64_t begin,
                                          float (&tile)[S::kTileRows][S::kWidth]) {
  constexpr int kWidth = S::kWidth;
  for (int i = threadIdx.x; i < S::kTileRows * kWidth; i += kThreads) {
    const int64_t t = begin + i / kWidth, d = i % kWidth;
    const bool exists = t < shape.time && d < shape.head_size;
    tile[i / kWidth][d] = exists ? token_row(tokens, shape, at, t)[d] : 0;
  }
}

// The dot product of two rows, whose parts the sharers hold; all sharers get the same bits.
template <typename S>
__device__ __forceinline__ float dot(const float (&a)[S::kPart], const float* b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) sum = fmaf(a[i], b[i], sum);
#pragma unroll
  for (int distance = 1; distance < S::kSharers; distance *= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  return sum;
}

template <typename S>
__device__ __forceinline__ void add_scaled(float factor, const float* row, float (&to)[S::kPart]) {
#pragma unroll
  for (int i = 0; i < S::kPart; ++i) to[i] = fmaf(factor, row[i], to[i]);
}

// ---- Dropout ----

// No dropout: the factor of every probability is 1.
struct KeepAll {
  __device__ __forceinline__ float factor_of(const graph::AttentionShape&,
                                             int64_t /*head*/,
                                             int64_t /*key*/,
                                             int64_t /*query*/) const {
    return 1;
  }
};
struct DropSome {
  Dropped dropped;

  __device__ __forceinline__ float factor_of(const graph::AttentionShape& shape,
                                             int64_t head,
                                             int64_t key,
                                             int64_t query) const {
    const uint64_t word = graph::AttentionDropout::word(shape.time, head, key, query);
    // philox_word() would keep the four words in local memory, to choose one of them by its index.
    const Philox4 words = philox(dropped.stream(), word >> 2);
    const uint32_t low = (word & 1) != 0 ? words.word[1] : words.word[0];
    const uint32_t high = (word & 1) != 0 ? words.word[3] : words.word[2];
    return ((word & 2) != 0 ? high : low) >= dropped.threshold ? dropped.factor : 0;
  }
};

// ---- Masks ----

// Whether a block's rows are queries, which see, or keys, which are seen.
enum class Side { kQueries, kKeys };

// The documents of a sample's tokens, if there are any, and those of the block's rows.
struct Documents {
  const int32_t* numbers;   // (T) or null
  int32_t of_row;           // of the thread's row; -1 for padding
  int32_t lowest, highest;  // of the block's rows, without padding
  bool others_see;          // padding tokens of the other side see document 0

  // The document of a token of the other side.
  __device__ __forceinline__ int32_t of_other(int64_t token) const {
    return others_see && numbers[token] < 0 ? 0 : numbers[token];
  }
};

// The documents of the block's rows. All threads of the block must call it.
template <typename S>
__device__ __forceinline__ Documents documents_of(const graph::AttentionShape& shape,
                                                  const ThreadPosition& at,
                                                  const int32_t* documents,
                                                  Side side = Side::kQueries) {
  if (documents == nullptr) return {nullptr, 0, 0, 0, false};
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  const int32_t* const numbers = documents + at.sample * shape.time;
  const int32_t document = at.inside ? numbers[at.row] : -1;
  const bool queries = side == Side::kQueries;
  const int32_t number = queries && at.inside ? shape.seen_document(document) : document;
  const int32_t highest = block_reduce<Max, kThreads>(number < 0 ? -1 : number);
  const int32_t lowest = -block_reduce<Max, kThreads>(number < 0 ? -kMax : -number);
  return {numbers, number < 0 ? -1 : number, lowest, highest, !queries && shape.padding_sees};
}

// Whether a tile of tokens has any document of the block's rows; the same for all threads.
template <typename S>
__device__ __forceinline__ bool has_tile(const graph::AttentionShape& shape,
                                         const Documents& documents,
                                         int64_t begin) {
  if (documents.numbers == nullptr) return true;
  const int64_t t = begin + threadIdx.x % S::kTileRows;
  const int32_t number = t < shape.time ? documents.of_other(t) : -1;
  const bool may_see = number >= documents.lowest && number <= documents.highest;
  return warp_reduce<Max>(may_see ? 1 : 0) != 0;
}

__device__ __forceinline__ bool same_document(const Documents& documents, int64_t other) {
  return documents.numbers == nullptr ||
         (documents.of_row >= 0 && documents.of_other(other) == documents.of_row);
}

// The range [first, end) of tokens of the other side, in full tiles, that the block's rows may
// reach.
struct Reach {
  int64_t first, end;
};
template <typename S>
__device__ __forceinline__ int64_t first_row() {
  return static_cast<int64_t>(blockIdx.x) * S::kRows;
}
template <typename S>
__device__ __forceinline__ int64_t last_row(const graph::AttentionShape& shape) {
  const int64_t end = first_row<S>() + S::kRows;
  return (end < shape.time ? end : shape.time) - 1;
}
template <typename S>
__device__ __forceinline__ Reach keys_of_block(const graph::AttentionShape& shape) {
  return {shape.first_key(first_row<S>()) / S::kTileRows * S::kTileRows,
          shape.keys_end(last_row<S>(shape))};
}
template <typename S>
__device__ __forceinline__ Reach queries_of_block(const graph::AttentionShape& shape) {
  return {shape.first_query(first_row<S>()) / S::kTileRows * S::kTileRows,
          shape.queries_end(last_row<S>(shape))};
}

}  // namespace lockstep::cuda::attention_tiles

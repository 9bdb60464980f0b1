#pragma once
// Which pairs of rows the attention kernels on tensor cores compute: the loop over the tiles that a
// block sees, masks within a tile, and dropout.
//
// A row reaches an interval of tokens of the other side, by the causal mask and the window, and of
// these only those of its own document. Both bounds of the interval grow with the row, so the first
// and the last row of a block or a warp bound what all its rows reach, and what every row reaches.

#include <cstdint>
#include <limits>

#include "runtime/cuda/ops/flash_tiles.h"

namespace lockstep::cuda::flash {

// ---- Masks ----

// Tokens [first, end) of the other side.
struct Interval {
  int first, end;
};
// Those in reach of a row, by the causal mask and the window.
template <typename G>
__device__ __forceinline__ Interval reach_of(const graph::AttentionShape& shape, int row) {
  if (row >= shape.time) return {0, 0};
  const int64_t first = G::kOfKeys ? shape.first_query(row) : shape.first_key(row);
  const int64_t end = G::kOfKeys ? shape.queries_end(row) : shape.keys_end(row);
  return {static_cast<int>(first), static_cast<int>(end)};
}

// The document of one of the block's rows, given its number.
template <typename G>
__device__ __forceinline__ int32_t document_of(const graph::AttentionShape& shape, int32_t number) {
  return G::kOfKeys ? number : shape.seen_document(number);
}

// The documents of some rows, without padding; no tile has one if `lowest` is above `highest`.
struct DocumentRange {
  int32_t lowest, highest;
  __device__ __forceinline__ bool has(int32_t document) const {
    return document >= lowest && document <= highest;
  }
};

// A step of the loop over tiles: tokens [begin, begin + kTileRows) of the other side's head `head`.
struct Step {
  int head, begin;
  bool seen;    // by any row of the warp
  bool masked;  // not by every row of the warp in full
};

// What the block's rows see.
template <typename G>
struct Sight {
  Interval block;            // in reach of any row of the block, from a multiple of kTileRows on
  Interval warp, warp_full;  // in reach of any, of every row of the warp
  const int32_t* documents;  // (T) of the sample, or null
  bool others_see;           // padding tokens of the other side see document 0
  DocumentRange block_documents, warp_documents;
  bool one_document;  // all rows of the warp are of one document

  // The document of a token of the other side.
  __device__ __forceinline__ int32_t of_other(int32_t number) const {
    return others_see && number < 0 ? 0 : number;
  }

  // The first step from `begin` of `head` on that any row of the block sees; its head is `heads` if
  // there is none. All lanes must call it.
  __device__ __forceinline__ Step next(int head, int begin, int heads) const {
    for (; head < heads; ++head, begin = block.first) {
      for (; begin < block.end; begin += G::kTileRows) {
        unsigned found = kBlockSees | kWarpSees;
        if (documents != nullptr) found = look(begin);
        if ((found & kBlockSees) == 0) continue;
        const int end = begin + G::kTileRows;
        const bool full =
            begin >= warp_full.first && end <= warp_full.end && (found & kDiffers) == 0;
        return {
            head, begin, begin < warp.end && end > warp.first && (found & kWarpSees) != 0, !full};
      }
    }
    return {heads, 0, false, false};
  }

  // Hides the scores of pairs that do not see each other. The rows' own limits are computed again
  // for each tile, to keep registers free.
  __device__ __forceinline__ void mask(const graph::AttentionShape& shape,
                                       int warp_first,
                                       const Step& step,
                                       const int32_t* tile_documents,
                                       SumFragment (&scores)[G::kTileFragments]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_first + sum_row(2 * half);
      const Interval reach = reach_of<G>(shape, row);
      const int first = reach.first - step.begin, end = reach.end - step.begin;
      const int32_t document =
          documents == nullptr || row >= shape.time ? 0 : document_of<G>(shape, documents[row]);
#pragma unroll
      for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int column = n * 8 + sum_column(i);
          if ((column < first) | (column >= end)) scores[n].at[i] = kHidden;
        }
      }
      if (documents == nullptr) continue;
#pragma unroll
      for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int32_t other = of_other(tile_documents[n * 8 + sum_column(i)]);
          if ((document < 0) | (other != document)) scores[n].at[i] = kHidden;
        }
      }
    }
  }

 private:
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  static constexpr unsigned kBlockSees = 1, kWarpSees = 2, kDiffers = 4;

  // Compares the documents of a tile with those of the block and of the warp.
  __device__ __forceinline__ unsigned look(int begin) const {
    unsigned found = one_document ? 0 : kDiffers;
    for (int i = lane_of_warp(); i < G::kTileRows; i += kWarp) {
      const int t = begin + i;
      const int32_t other = t < block.end ? of_other(documents[t]) : -1;
      if (block_documents.has(other)) found |= kBlockSees;
      if (warp_documents.has(other)) found |= kWarpSees;
      if (other != warp_documents.lowest) found |= kDiffers;
    }
    return __reduce_or_sync(kAllLanes, found);
  }
};

// All threads of the block must call it.
template <typename G>
__device__ __forceinline__ Sight<G> sight_of(const graph::AttentionShape& shape,
                                             const Position& at,
                                             const int32_t* documents) {
  const auto time = static_cast<int>(shape.time);
  const auto last = [&](int first, int rows) {
    return first + rows < time ? first + rows - 1 : time - 1;
  };
  const int warp_first = at.warp_first();
  const Interval first = reach_of<G>(shape, at.first),
                 end = reach_of<G>(shape, last(at.first, G::kRows)),
                 warp_begin = reach_of<G>(shape, warp_first),
                 warp_end = reach_of<G>(shape, last(warp_first, 16));
  const bool has_rows = warp_first < time;
  Sight<G> sight = {};
  sight.block = {first.first / G::kTileRows * G::kTileRows, end.end};
  if (has_rows) {
    sight.warp = {warp_begin.first, warp_end.end};
    sight.warp_full = {warp_end.first, warp_begin.end};
  }
  if (documents == nullptr) return sight;

  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  sight.documents = documents + at.sample * shape.time;
  sight.others_see = G::kOfKeys && shape.padding_sees;
  // Each lane has one of the warp's rows twice; rows past the end count as the last one.
  const int row = warp_first + lane_of_warp() % 16;
  const int32_t mine =
      has_rows ? document_of<G>(shape, sight.documents[row < time ? row : time - 1]) : -1;
  const int32_t highest = mine < 0 ? -1 : mine, lowest = mine < 0 ? -kMax : -mine;
  sight.warp_documents = {-warp_reduce<Max>(lowest), warp_reduce<Max>(highest)};
  sight.one_document = warp_reduce<Max>(mine != sight.warp_documents.highest ? 1 : 0) == 0;
  sight.block_documents = {-block_reduce<Max, G::kThreads>(lowest),
                           block_reduce<Max, G::kThreads>(highest)};
  return sight;
}

// Calls copy(step, buffer) and then use(step, buffer) for each step of `heads` heads of the other
// side. All threads of the block must call it.
template <typename G, typename Copy, typename Use>
__device__ __forceinline__ void for_each_tile(
    const Sight<G>& sight, int first_head, int heads, Copy copy, Use use) {
  const int end = first_head + heads;
  Step step = sight.next(first_head, sight.block.first, end);
  if (step.head < end) copy(step, 0);
  end_copies();
  for (int buffer = 0; step.head < end; buffer = (buffer + 1) % G::kBuffers) {
    const Step next = sight.next(step.head, step.begin + G::kTileRows, end);
    if constexpr (G::kBuffers == 2) {
      if (next.head < end) copy(next, 1 - buffer);
      end_copies();
    }
    wait_for_copies<G::kBuffers - 1>();
    __syncthreads();
    if (step.seen) use(step, buffer);
    __syncthreads();  // the buffer may be overwritten
    if constexpr (G::kBuffers == 1) {
      if (next.head < end) copy(next, 0);
      end_copies();
    }
    step = next;
  }
}

// ---- Dropout ----

// Which pairs of the lane's scores are kept: bit 4 n + i for element i of scores[n]. A word of the
// random stream belongs to each pair; one computation gives the words of a key and four
// neighbouring queries (AttentionDropout::word). Lanes that share them compute one each and give it
// to the others. All lanes must call it; `head` counts the heads of all samples.
template <typename G>
__device__ __forceinline__ uint32_t kept_pairs(const Dropped& dropout,
                                               const graph::AttentionShape& shape,
                                               int64_t head,
                                               int warp_first,
                                               int begin) {
  const RngStream random = dropout.stream();
  const int lane = lane_of_warp(), group = lane / 4, place = lane % 4;
  // Four lanes of neighbouring queries share two keys and two blocks of four queries; two lanes of
  // neighbouring queries share two keys and a block.
  const int mine = G::kOfKeys ? place % 2 : group % 4;
  uint32_t words_kept = 0;
#pragma unroll 1
  for (int n = 0; n < G::kTileFragments; ++n) {
    const int column = begin + n * 8;
    const int key = G::kOfKeys ? warp_first + group + mine * 8 : column + place * 2 + mine % 2;
    const int query =
        G::kOfKeys ? column + place / 2 * 4 : warp_first + group / 4 * 4 + mine / 2 * 8;
    const Philox4 words =
        philox(random, graph::AttentionDropout::word(shape.time, head, key, query) >> 2);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const bool is_kept = words.word[k] >= dropout.threshold;
      words_kept |= (is_kept ? 1u : 0u) << (4 * n + k);
    }
  }
  uint32_t kept = 0;
  if constexpr (G::kOfKeys) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t theirs = __shfl_sync(kAllLanes, words_kept, lane - place % 2 + half);
      kept |= (theirs >> (2 * (place % 2)) & 0x33333333u) << (2 * half);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t theirs = __shfl_sync(kAllLanes, words_kept, lane + (i - group % 4) * 4);
      kept |= (theirs >> (group % 4) & 0x11111111u) << i;
    }
  }
  return kept;
}

// Sets those of the lane's weights to 0 that are not kept.
template <typename G>
__device__ __forceinline__ void drop(uint32_t kept, SumFragment (&weights)[G::kTileFragments]) {
#pragma unroll
  for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((kept >> (4 * n + i) & 1) == 0) weights[n].at[i] = 0;
    }
  }
}

}  // namespace lockstep::cuda::flash

#pragma once
// What the attention kernels on tensor cores share: how they divide rows among warps, copy tiles of
// the other rows, and multiply them. flash_masks.h has the loop over tiles, masks and dropout. Only
// flash_attention.cu and flash_attention_backward.cu include these.
//
// A block handles kRows rows of one head, 16 a warp: queries, or keys in the gradients of keys and
// values. The rows of the other kind pass in tiles of kTileRows through shared memory: x, which is
// multiplied with the block's rows into scores, and y, its partner.
//
//    pass     block's rows   tile x, y       computes
//    kOut     q              k, v            out
//    kQueries q, d_out       k, v            d_q
//    kBoth    k, v           q, d_out        d_k and d_v
//    kKeys    k, v           q, d_out        d_k alone    (if the sums of both do not fit into the
//    kValues  k              q, d_out        d_v alone     registers)
//
// Scores and their gradients stay in registers: the sums of one product are the left matrix of the
// next (left_of()), rounded to T.
//
// While a tile is used, the next one is copied, if there is room for two. Tiles that no row of the
// block sees are not copied, and warps that see nothing of a tile wait. A tile that is seen in full
// is not masked.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/dynamic_shared.h"
#include "runtime/cuda/fragments.h"
#include "runtime/cuda/ops/attention_arrays.h"

namespace lockstep::cuda::flash {

enum class Pass { kOut, kQueries, kBoth, kKeys, kValues };

// How a pass divides its work, for heads of up to `Width` elements.
template <typename T, int Width, Pass pass>
struct Tiling {
  using Element = T;
  static constexpr Pass kPass = pass;
  static constexpr bool kOfKeys = pass != Pass::kOut && pass != Pass::kQueries;
  static constexpr int kWidth = Width, kDepth = cuda::kDepth<T>, kSteps = Width / kDepth;
  static constexpr int kVector = kVectorWidth<T>;
  // Rows in shared memory are 16 bytes apart from a multiple of 128 (or an odd number of 16), so
  // that 8 of them lie in different banks.
  static constexpr int kStride = Width + kVector;
  static constexpr int kRowBytes = Width * static_cast<int>(sizeof(T));
  static constexpr int kRows = kRowBytes <= 512 ? 64 : 32;
  static constexpr int kThreads = kRows / 16 * kWarp;
  static constexpr int kTileRows = kRowBytes > 256                         ? 16
                                   : kRowBytes > 128 || pass != Pass::kOut ? 32
                                                                           : 64;
  // Blocks of a multiprocessor for which the compiler saves registers.
  static constexpr int kMinBlocks = kRowBytes <= 128 && pass != Pass::kBoth ? 3 : 1;
  static constexpr int kTileFragments = kTileRows / 8;

  static constexpr int kOwnMatrices = pass == Pass::kOut || pass == Pass::kValues ? 1 : 2;
  static constexpr int kOutputs = pass == Pass::kBoth ? 2 : 1;
  static constexpr int kScores = pass == Pass::kOut || pass == Pass::kValues ? 1 : 2;
  // The block's own rows are in registers if these suffice, otherwise in shared memory.
  static constexpr int kRegisters =
      kOwnMatrices * kRowBytes / 8 + kOutputs * Width / 2 + kScores * kTileRows / 2;
  static constexpr bool kInRegisters = kRegisters <= 165;

  // ---- Shared memory: the own rows, one or two buffers of x and y, the tokens of each buffer ----
  static constexpr int kHeldRows = kInRegisters ? 0 : kOwnMatrices * kRows;
  static constexpr size_t shared_bytes(int buffers) {
    return sizeof(T) * kStride * static_cast<size_t>(kHeldRows + buffers * 2 * kTileRows) +
           sizeof(float) * static_cast<size_t>(buffers * 3 * kTileRows);
  }
  static constexpr int kBuffers = shared_bytes(2) <= kMaxSharedBytes ? 2 : 1;
  static constexpr size_t kSharedBytes = shared_bytes(kBuffers);
  static constexpr int kTilesRows = kBuffers * 2 * kTileRows;
  static_assert(kSharedBytes <= kMaxSharedBytes && kThreads >= kTileRows);
  // Own rows pass through the tiles on their way to registers, outputs on their way to memory.
  static_assert(!kInRegisters || kTilesRows >= kOwnMatrices * kRows);
  static_assert(kHeldRows + kTilesRows >= kRows);
};

// ---- Shared memory ----

// A tile of the other rows.
template <typename T>
struct Tile {
  T *x, *y;            // kTileRows rows, zeros past T and D
  int32_t* documents;  // of the tokens
  float* log_sum_exp;  // of queries
  float* delta;
};

template <typename G>
__device__ __forceinline__ typename G::Element* shared_rows() {
  return reinterpret_cast<typename G::Element*>(dynamic_shared());
}
template <typename G>
__device__ __forceinline__ Tile<typename G::Element> tile_in(int buffer) {
  typename G::Element* const tiles = shared_rows<G>() + G::kHeldRows * G::kStride;
  auto* const words =
      reinterpret_cast<float*>(tiles + G::kTilesRows * G::kStride) + buffer * 3 * G::kTileRows;
  typename G::Element* const x = tiles + buffer * 2 * G::kTileRows * G::kStride;
  return {x,
          x + G::kTileRows * G::kStride,
          reinterpret_cast<int32_t*>(words),
          words + G::kTileRows,
          words + 2 * G::kTileRows};
}

// ---- Rows of a head ----

// Where the block is: its sample, its head (of keys in a pass of keys), and its first row.
struct Position {
  int sample, head, first;

  __device__ __forceinline__ int warp_first() const {
    return first + static_cast<int>(threadIdx.x) / kWarp * 16;
  }
};
// Blocks with the most work come first: if attention is causal, late queries and early keys.
template <typename G>
__device__ __forceinline__ Position position(const graph::AttentionShape& shape) {
  const auto heads = static_cast<unsigned>(G::kOfKeys ? shape.kv_heads : shape.heads);
  const auto number = static_cast<unsigned>(block_down());
  const unsigned rows = G::kOfKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
  return {static_cast<int>(number / heads),
          static_cast<int>(number % heads),
          static_cast<int>(rows) * G::kRows};
}
template <typename G>
__device__ __forceinline__ bool is_past_heads(const graph::AttentionShape& shape) {
  return block_down() >= shape.batch * (G::kOfKeys ? shape.kv_heads : shape.heads);
}

// Row t of a head begins at data + t * stride.
template <typename T>
struct HeadRows {
  T* data;
  int64_t stride;
  __device__ __forceinline__ T* at(int t) const { return data + t * stride; }
};
template <typename T>
__device__ __forceinline__ HeadRows<T> head_rows(const Tokens<T>& tokens,
                                                 const graph::AttentionShape& shape,
                                                 int sample,
                                                 int head) {
  return {tokens.data + sample * shape.time * tokens.stride + head * shape.head_size,
          tokens.stride};
}
// Offset of a head's first token in an array (B, H, T).
__device__ __forceinline__ int64_t statistics(const graph::AttentionShape& shape,
                                              int sample,
                                              int head) {
  return (sample * shape.heads + head) * shape.time;
}

// The limits of a copy. vectors: every row begins at a multiple of 16 bytes and has full vectors.
struct Extent {
  int time, head_size;
  bool vectors;
};

// All threads of the block begin to copy rows [begin, begin + kCount), zeros outside.
template <typename G, int kCount, typename T>
__device__ __forceinline__ void copy_rows(const HeadRows<const T>& rows,
                                          int begin,
                                          const Extent& extent,
                                          T* to) {
  constexpr int kChunks = G::kWidth / G::kVector, kRowsAtOnce = G::kThreads / kChunks;
  static_assert(G::kThreads % kChunks == 0 && kCount % kRowsAtOnce == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks,
            d = static_cast<int>(threadIdx.x) % kChunks * G::kVector;
  const T* const from = rows.at(begin + row) + d;
  T* const place = to + row * G::kStride + d;
  const int left = d < extent.head_size ? extent.time - begin - row : 0;
  if (extent.vectors) {
#pragma unroll
    for (int i = 0; i < kCount; i += kRowsAtOnce) {
      const bool exists = i < left;
      copy_async<16>(place + i * G::kStride, exists ? from + i * rows.stride : rows.data, exists);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kCount; i += kRowsAtOnce) {
#pragma unroll 1
    for (int k = 0; k < G::kVector; ++k) {
      const bool exists = i < left && d + k < extent.head_size;
      place[i * G::kStride + k] = exists ? from[i * rows.stride + k] : T{};
    }
  }
}

// The same for a number of each token of a tile, from element `begin` of `numbers` on.
template <typename G, typename N>
__device__ __forceinline__ void copy_numbers(const N* numbers, int begin, int time, N* to) {
  const int i = static_cast<int>(threadIdx.x), t = begin + i;
  if (i >= G::kTileRows) return;
  copy_async<4>(to + i, numbers + (t < time ? t : 0), t < time);
}

// The left fragments of the warp's rows of one matrix.
template <typename G>
struct OwnRows {
  using T = typename G::Element;
  LeftFragment held[G::kInRegisters ? G::kSteps : 1];
  const T* rows;

  __device__ __forceinline__ LeftFragment at(int step) const {
    if constexpr (G::kInRegisters) return held[step];
    return load_left<T>(rows + step * G::kDepth, G::kStride);
  }
};

// Reads the block's rows of `matrices`. All threads must call it, before the first tile.
template <typename G>
__device__ __forceinline__ void read_own(
    const HeadRows<const typename G::Element> (&matrices)[G::kOwnMatrices],
    int first,
    const Extent& extent,
    OwnRows<G> (&own)[G::kOwnMatrices]) {
  using T = typename G::Element;
#pragma unroll
  for (int m = 0; m < G::kOwnMatrices; ++m) {
    T* const to = shared_rows<G>() + m * G::kRows * G::kStride;
    copy_rows<G, G::kRows>(matrices[m], first, extent, to);
    own[m].rows = to + static_cast<int>(threadIdx.x) / kWarp * 16 * G::kStride;
  }
  end_copies();
  wait_for_copies<0>();
  __syncthreads();
  if constexpr (G::kInRegisters) {
#pragma unroll
    for (int m = 0; m < G::kOwnMatrices; ++m) {
#pragma unroll
      for (int k = 0; k < G::kSteps; ++k)
        own[m].held[k] = load_left<T>(own[m].rows + k * G::kDepth, G::kStride);
    }
    __syncthreads();  // tiles come where the rows were
  }
}

// Stores two elements in shared memory; store() is for global memory.
template <typename T>
__device__ __forceinline__ void store_pair(float first, float second, T* to) {
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<uint32_t*>(to) = round_pair<T>(first, second);
  } else {
    *reinterpret_cast<Vector<float, 2>*>(to) = {{first, second}};
  }
}

// Writes the warps' sums, times the factor of their row, as the block's rows of `to`. All threads
// must call it, after the last tile.
template <typename G>
__device__ __forceinline__ void write_rows(const SumFragment (&sums)[G::kWidth / 8],
                                           const float (&factors)[2],
                                           const HeadRows<typename G::Element>& to,
                                           int first,
                                           const Extent& extent) {
  using T = typename G::Element;
  __syncthreads();  // what lies there may still be read
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  T* const rows = shared_rows<G>() + warp_row * G::kStride;
#pragma unroll
  for (int n = 0; n < G::kWidth / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float first = sums[n].at[2 * half] * factors[half],
                  second = sums[n].at[2 * half + 1] * factors[half];
      store_pair(first, second, rows + sum_row(2 * half) * G::kStride + n * 8 + sum_column(0));
    }
  }
  __syncwarp();
  constexpr int kChunks = G::kWidth / G::kVector;
  for (int i = lane_of_warp(); i < 16 * kChunks; i += kWarp) {
    const int row = i / kChunks, d = i % kChunks * G::kVector, t = first + warp_row + row;
    if (t >= extent.time || d >= extent.head_size) continue;
    const T* const from = rows + row * G::kStride + d;
    T* const place = to.at(t) + d;
    using Chunk = Vector<T, G::kVector>;
    if (extent.vectors) {
      store_vector(*reinterpret_cast<const Chunk*>(from), place);
    } else {
#pragma unroll 1
      for (int k = 0; k < G::kVector && d + k < extent.head_size; ++k) place[k] = from[k];
    }
  }
}

// ---- Products ----

// scores = own rows times the tile's rows.
template <typename G>
__device__ __forceinline__ void multiply_rows(const OwnRows<G>& own,
                                              const typename G::Element* tile,
                                              SumFragment (&scores)[G::kTileFragments]) {
  using T = typename G::Element;
#pragma unroll
  for (int n = 0; n < G::kTileFragments; ++n) scores[n] = {};
#pragma unroll
  for (int k = 0; k < G::kSteps; ++k) {
    const LeftFragment left = own.at(k);
#pragma unroll
    for (int n = 0; n < G::kTileFragments; n += 2) {
      RightFragment right[2];
      load_rows_as_right<T>(tile + n * 8 * G::kStride + k * G::kDepth, G::kStride, right);
      multiply_add<T>(scores[n], left, right[0]);
      multiply_add<T>(scores[n + 1], left, right[1]);
    }
  }
}

// sums += weights times the tile.
template <typename G>
__device__ __forceinline__ void add_weighted(const SumFragment (&weights)[G::kTileFragments],
                                             const typename G::Element* tile,
                                             SumFragment (&sums)[G::kWidth / 8]) {
  using T = typename G::Element;
#pragma unroll
  for (int k = 0; k < G::kTileRows / G::kDepth; ++k) {
    const LeftFragment left = left_of<T>(weights + k * (G::kDepth / 8));
#pragma unroll
    for (int n = 0; n < G::kWidth / 8; n += 2) {
      RightFragment right[2];
      load_right<T>(tile + k * G::kDepth * G::kStride + n * 8, G::kStride, right);
      multiply_add<T>(sums[n], left, right[0]);
      multiply_add<T>(sums[n + 1], left, right[1]);
    }
  }
}

}  // namespace lockstep::cuda::flash

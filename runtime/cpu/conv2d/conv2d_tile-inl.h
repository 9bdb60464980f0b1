// The tile kernels of convolutions. Compiled once per instruction set: include it only from a .cc
// file that Highway's foreach_target.h includes repeatedly. They resemble those of matrix products
// (gemm_tile-inl.h), but read their operands from the image through lists of pointers.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_CONV2D_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_CONV2D_TILE_INL_H
#undef LOCKSTEP_RUNTIME_CPU_CONV2D_TILE_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_CONV2D_TILE_INL_H
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/epilogue-inl.h"
#include "runtime/cpu/matmul/gemm_tile-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Tiles of pixels x channels: c[pixel][n] (+)= sum over taps and k of a[pixel][tap][k]
// b[tap][k][n].
struct GatherTiles {
  size_t tiles, taps, depth;
  const float* const* a;  // [tile][tap][kTileRows]: where the channels of a pixel begin
  const float* b;         // [tap][k][vectors * kVecLanes]
  float* const* c;        // [tile][kTileRows]: where the result of a pixel begins
  size_t column;          // of the result; added to the pointers of c
  bool accumulate;
  bool prefetch;  // fetch the pixels of the next tile
  // Applied to the sums if they are complete and all columns exist; its activation is none or ReLU.
  // Otherwise null.
  const Epilogue<float>* epilogue;
  const float* result;  // base of the result, to find the residual of an element
};

// Applies the epilogue to one vector of columns of a tile's sums, which are in registers.
template <size_t kRows>
HWY_INLINE void finish_tile(const GatherTiles& t,
                            float* const* c,
                            size_t column,
                            Vec (&sum)[kRows]) {
  int64_t at[kRows];
  for (size_t i = 0; i < kRows; ++i) at[i] = c[i] - t.result + static_cast<int64_t>(column);
  finish_sums(*t.epilogue, FullVector{}, sum, column, at);
  if (t.epilogue->activation != Activation::kRelu) return;
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i) sum[i] = activate<Activation::kRelu>(sum[i]);
}

template <size_t kRows, size_t kVectors>
HWY_NOINLINE void gather_tiles(const GatherTiles& t) {
  const F32 d;
  const size_t depth = t.depth, column = t.column;
  const float* const* a = t.a;
  float* const* c = t.c;
  for (size_t n = 0; n < t.tiles; ++n, c += kTileRows) {
    if (t.prefetch && n + 1 < t.tiles) {
      // Only the last tap of the next tile reads pixels that no earlier tile has read.
      const float* const* next = a + (2 * t.taps - 1) * kTileRows;
      for (size_t i = 0; i < kRows; ++i) {
        for (size_t k = 0; k < depth; k += 16) __builtin_prefetch(next[i] + k, 0, 3);
      }
    }
    if (n + 1 < t.tiles) {
      for (size_t i = kTileRows; i < kTileRows + kRows; ++i) {
        for (size_t v = 0; v < kVectors; ++v) {
          __builtin_prefetch(c[i] + column + v * kVecLanes, 1, 3);
        }
      }
      if (t.epilogue != nullptr && t.epilogue->residual != nullptr) {
        const float* const residual = t.epilogue->residual + column;
        for (size_t i = kTileRows; i < kTileRows + kRows; ++i) {
          for (size_t v = 0; v < kVectors; ++v) {
            __builtin_prefetch(residual + (c[i] - t.result) + v * kVecLanes, 0, 3);
          }
        }
      }
    }
    Vec sum[kRows][kVectors];
    HWY_UNROLL(16)
    for (size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) {
        sum[i][v] = t.accumulate ? hn::LoadU(d, c[i] + column + v * kVecLanes) : hn::Zero(d);
      }
    }
    const float* HWY_RESTRICT b = t.b;
    for (size_t tap = 0; tap < t.taps; ++tap, a += kTileRows) {
      const float* row[kRows];
      HWY_UNROLL(16)
      for (size_t i = 0; i < kRows; ++i) row[i] = a[i];
      for (size_t k = 0; k < depth; ++k) {
        Vec weights[kVectors];
        HWY_UNROLL(4)
        for (size_t v = 0; v < kVectors; ++v) weights[v] = hn::LoadU(d, b + v * kVecLanes);
        b += kVectors * kVecLanes;
        HWY_UNROLL(16)
        for (size_t i = 0; i < kRows; ++i) {
          const Vec factor = hn::Set(d, row[i][k]);
          HWY_UNROLL(4)
          for (size_t v = 0; v < kVectors; ++v) {
            sum[i][v] = hn::MulAdd(factor, weights[v], sum[i][v]);
          }
        }
      }
    }
    if (t.epilogue != nullptr) {
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) {
        Vec some[kRows];
        HWY_UNROLL(16)
        for (size_t i = 0; i < kRows; ++i) some[i] = sum[i][v];
        finish_tile(t, c, column + v * kVecLanes, some);
        HWY_UNROLL(16)
        for (size_t i = 0; i < kRows; ++i) sum[i][v] = some[i];
      }
    }
    HWY_UNROLL(16)
    for (size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(sum[i][v], d, c[i] + column + v * kVecLanes);
      }
    }
  }
}

using GatherKernel = void (*)(const GatherTiles&);

template <size_t kVectors, size_t... kRows>
constexpr std::array<GatherKernel, sizeof...(kRows)> gather_kernels(std::index_sequence<kRows...>) {
  return {gather_tiles<kRows + 1, kVectors>...};
}

HWY_INLINE GatherKernel gather_kernel(size_t vectors, size_t rows) {
  constexpr auto kAll = std::make_index_sequence<kTileRows>();
  static constexpr std::array<GatherKernel, kTileRows> kKernels[kTileVectors] = {
      gather_kernels<1>(kAll), gather_kernels<2>(kAll)};
  return kKernels[vectors - 1][rows - 1];
}

// Two pixels whose channels are multiplied.
struct PixelPair {
  const float* a;
  const float* b;
};

// A tile of channels x channels: c[i][n] (+)= sum over pairs of a[row + i] b[column + n].
struct PairTile {
  size_t pairs;
  const PixelPair* pair;
  size_t row, column;  // first channels of the tile
  size_t columns;      // of the tile
  float* c;
  size_t c_stride;
  bool accumulate;
};

// kPartial: only some lanes of the last vector are used.
template <size_t kRows, size_t kVectors, bool kPartial>
HWY_NOINLINE void multiply_pairs(const PairTile& t) {
  const F32 d;
  using Last = std::conditional_t<kPartial, PartialVector, FullVector>;
  Last last{};
  if constexpr (kPartial) last.count = t.columns - (kVectors - 1) * kVecLanes;
  const auto load = [&](const float* from, size_t v) HWY_ATTR {
    return v + 1 < kVectors ? hn::LoadU(d, from + v * kVecLanes)
                            : last.load(from + (kVectors - 1) * kVecLanes);
  };
  Vec sum[kRows][kVectors];
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      sum[i][v] = t.accumulate ? load(t.c + i * t.c_stride, v) : hn::Zero(d);
    }
  }
  const PixelPair* HWY_RESTRICT pair = t.pair;
  const PixelPair* const end = pair + t.pairs;
  const size_t row = t.row, column = t.column;
  for (; pair != end; ++pair) {
    const float* const a = pair->a + row;
    const float* const b = pair->b + column;
    Vec values[kVectors];
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) values[v] = load(b, v);
    HWY_UNROLL(16)
    for (size_t i = 0; i < kRows; ++i) {
      const Vec factor = hn::Set(d, a[i]);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) {
        sum[i][v] = hn::MulAdd(factor, values[v], sum[i][v]);
      }
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (size_t v = 0; v + 1 < kVectors; ++v) {
      hn::StoreU(sum[i][v], d, t.c + i * t.c_stride + v * kVecLanes);
    }
    last.store(sum[i][kVectors - 1], t.c + i * t.c_stride + (kVectors - 1) * kVecLanes);
  }
}

using PairKernel = void (*)(const PairTile&);

template <size_t kVectors, bool kPartial, size_t... kRows>
constexpr std::array<PairKernel, sizeof...(kRows)> pair_kernels(std::index_sequence<kRows...>) {
  return {multiply_pairs<kRows + 1, kVectors, kPartial>...};
}

// The kernel for tiles of `rows` x `columns`.
HWY_INLINE PairKernel pair_kernel(size_t rows, size_t columns) {
  constexpr auto kAll = std::make_index_sequence<kTileRows>();
  static constexpr std::array<PairKernel, kTileRows> kKernels[kTileVectors][2] = {
      {pair_kernels<1, false>(kAll), pair_kernels<1, true>(kAll)},
      {pair_kernels<2, false>(kAll), pair_kernels<2, true>(kAll)}};
  return kKernels[(columns - 1) / kVecLanes][columns % kVecLanes != 0][rows - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_CONV2D_TILE_INL_H

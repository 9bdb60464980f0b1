// The kernels of bf16x3.h with AVX-512 and AMX: TDPBF16PS multiplies a tile of A by a tile of B.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "runtime/cpu/matmul/bf16x3.h"
#include "runtime/cpu/matmul/saved_registers.h"

// Only this file is compiled for these instruction sets, because the processor may lack them.
#define LOCKSTEP_AMX \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16,bmi2")))
#define LOCKSTEP_AMX_INLINE LOCKSTEP_AMX __attribute__((always_inline)) inline

namespace lockstep::cpu {
namespace {

// ---- Splitting ----

// The parts of 16 floats, each in the upper half of a word. The lower half of the third is
// arbitrary.
struct Parts {
  __m512i part[kTileParts];
};

LOCKSTEP_AMX_INLINE Parts split(__m512 x) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  Parts result;
  result.part[0] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper);
  const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(result.part[0]));
  result.part[1] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half), upper);
  result.part[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(result.part[1])));
  return result;
}

// Loads the first `count` of 16 floats, padded with zeros.
LOCKSTEP_AMX_INLINE __m512 load(const float* from, int64_t count) {
  if (from == nullptr || count <= 0) return _mm512_setzero_ps();
  if (count >= 16) return _mm512_loadu_ps(from);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
}

// Stores the upper halves of the words of both, in the order `order` (see below): first those of
// `first`, then those of `second`; or interleaved.
LOCKSTEP_AMX_INLINE void store_parts(const Parts& first,
                                     const Parts& second,
                                     __m512i order,
                                     uint16_t* to) {
  for (int64_t p = 0; p < kTileParts; ++p) {
    _mm512_store_si512(to + p * kPartElems,
                       _mm512_permutex2var_epi16(first.part[p], order, second.part[p]));
  }
}

// Halves 2 i + 1 of the 64 halves of two vectors.
LOCKSTEP_AMX_INLINE __m512i consecutive_order() {
  alignas(64) static constexpr uint16_t kOrder[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_load_si512(kOrder);
}
LOCKSTEP_AMX_INLINE __m512i interleaved_order() {
  alignas(64) static constexpr uint16_t kOrder[32] = {1,  33, 3,  35, 5,  37, 7,  39, 9,  41, 11,
                                                      43, 13, 45, 15, 47, 17, 49, 19, 51, 21, 53,
                                                      23, 55, 25, 57, 27, 59, 29, 61, 31, 63};
  return _mm512_load_si512(kOrder);
}

// ---- Packing ----

LOCKSTEP_AMX void pack_rows(const float* const* rows, int64_t depth, uint16_t* to, int64_t stride) {
  const __m512i order = consecutive_order();
  bool all_rows = true;
  for (int64_t i = 0; i < kTileEdge; ++i) all_rows = all_rows && rows[i] != nullptr;
  int64_t k = 0;
  for (; all_rows && k + kTileDepth <= depth; k += kTileDepth, to += stride) {
    for (int64_t i = 0; i < kTileEdge; ++i) {
      store_parts(split(_mm512_loadu_ps(rows[i] + k)),
                  split(_mm512_loadu_ps(rows[i] + k + 16)),
                  order,
                  to + i * kTileDepth);
    }
  }
  for (; k < depth; k += kTileDepth, to += stride) {
    for (int64_t i = 0; i < kTileEdge; ++i) {
      const float* const row = rows[i] == nullptr ? nullptr : rows[i] + k;
      store_parts(split(load(row, depth - k)),
                  split(load(row == nullptr ? nullptr : row + 16, depth - k - 16)),
                  order,
                  to + i * kTileDepth);
    }
  }
}

LOCKSTEP_AMX void pack_depth(const float* const* rows, int64_t columns, uint16_t* to) {
  const __m512i order = interleaved_order();
  for (int64_t k = 0; k < kTileDepth; k += 2, to += 2 * kTileEdge) {
    store_parts(split(load(rows[k], columns)), split(load(rows[k + 1], columns)), order, to);
  }
}

// Turns a tile of A into one of B, or back: transposes 16 x 16 pairs.
LOCKSTEP_AMX_INLINE void transpose_part(const uint16_t* from, uint16_t* to) {
  const auto* const pairs = reinterpret_cast<const uint32_t*>(from);
  for (int64_t block = 0; block < 16; block += 4) {
    __m512i row[4];  // pairs block ... block + 3 of rows i, i + 4, i + 8, i + 12
    for (int64_t i = 0; i < 4; ++i) {
      const uint32_t* const at = pairs + i * 16 + block;
      const auto quarter = [at](int64_t n) __attribute__((always_inline)) {
        return _mm_load_si128(reinterpret_cast<const __m128i*>(at + n * 64));
      };
      __m512i all = _mm512_castsi128_si512(quarter(0));
      all = _mm512_mask_broadcast_i32x4(all, 0x00f0, quarter(1));
      all = _mm512_mask_broadcast_i32x4(all, 0x0f00, quarter(2));
      row[i] = _mm512_mask_broadcast_i32x4(all, 0xf000, quarter(3));
    }
    const __m512i low01 = _mm512_unpacklo_epi32(row[0], row[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(row[0], row[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(row[2], row[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(row[2], row[3]);
    uint16_t* const out = to + block * 32;
    _mm512_store_si512(out, _mm512_unpacklo_epi64(low01, low23));
    _mm512_store_si512(out + 32, _mm512_unpackhi_epi64(low01, low23));
    _mm512_store_si512(out + 64, _mm512_unpacklo_epi64(high01, high23));
    _mm512_store_si512(out + 96, _mm512_unpackhi_epi64(high01, high23));
  }
}

LOCKSTEP_AMX_INLINE void transpose_parts(const uint16_t* from, uint16_t* to) {
  for (int64_t p = 0; p < kTileParts; ++p)
    transpose_part(from + p * kPartElems, to + p * kPartElems);
}

LOCKSTEP_AMX void pack_rows_as_columns(const float* const* rows,
                                       int64_t depth,
                                       uint16_t* to,
                                       int64_t stride) {
  constexpr int64_t kAhead = 4 * kTileDepth;
  alignas(64) uint16_t tile[kSplitElems];
  const float* some[kTileEdge];
  for (int64_t k = 0; k < depth; k += kTileDepth, to += stride) {
    for (int64_t i = 0; i < kTileEdge; ++i) {
      some[i] = rows[i] == nullptr ? nullptr : rows[i] + k;
      // The rows are far apart and little is read of each at a time, so the hardware prefetcher
      // does not predict them. The prefetched address may lie in the caller's next chunk or beyond
      // the array.
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(rows[i]) + (k + kAhead) * sizeof(float);
      __builtin_prefetch(reinterpret_cast<const void*>(ahead), 0, 3);
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + 64), 0, 3);
    }
    pack_rows(some, depth - k < kTileDepth ? depth - k : kTileDepth, tile, kSplitElems);
    transpose_parts(tile, to);
  }
}

LOCKSTEP_AMX void pack_depth_as_rows(const float* const* rows, int64_t columns, uint16_t* to) {
  alignas(64) uint16_t tile[kSplitElems];
  pack_depth(rows, columns, tile);
  transpose_parts(tile, to);
}

// Splits tiles step by step, two vectors in each step: a row of A, or two of the depth of B.
class Splitter {
 public:
  LOCKSTEP_AMX_INLINE Splitter(const Bf16x3Kernels::Split* tiles, int64_t count, bool of_b)
      : next_(tiles),
        end_(tiles + count),
        of_b_(of_b),
        order_(of_b ? interleaved_order() : consecutive_order()) {
    load_row();
  }

  LOCKSTEP_AMX_INLINE void run(int64_t steps) {
    for (; steps > 0 && next_ != end_; --steps) step();
  }
  LOCKSTEP_AMX_INLINE void finish() {
    while (next_ != end_) step();
  }

 private:
  LOCKSTEP_AMX_INLINE void step() {
    const int64_t left = next_->count - k_;
    __m512 first, second;
    if (left >= kTileDepth && first_ != nullptr && second_ != nullptr) {
      first = _mm512_loadu_ps(first_ + k_);
      second = _mm512_loadu_ps(second_ + k_);
    } else {
      first = load(first_ == nullptr ? nullptr : first_ + k_, left);
      second = load(second_ == nullptr ? nullptr : second_ + k_, of_b_ ? left : left - 16);
    }
    store_parts(split(first), split(second), order_, to_);
    to_ += next_->stride;
    k_ += kTileDepth;
    if (k_ < next_->count) return;
    k_ = 0;
    if (++row_ == kTileEdge) {
      row_ = 0;
      ++next_;
    }
    load_row();
  }

  LOCKSTEP_AMX_INLINE void load_row() {
    if (next_ == end_) return;
    const auto at = [this](const float* row, int64_t more) __attribute__((always_inline)) {
      return row == nullptr ? row : row + next_->offset + more;
    };
    const float* const* const rows = next_->rows;
    first_ = at(rows[of_b_ ? 2 * row_ : row_], 0);
    second_ = of_b_ ? at(rows[2 * row_ + 1], 0) : at(rows[row_], 16);
    to_ = next_->to + row_ * kTileDepth;
  }

  const Bf16x3Kernels::Split *next_, *end_;
  int64_t row_ = 0, k_ = 0;  // position of the next step
  const float *first_ = nullptr, *second_ = nullptr;
  uint16_t* to_ = nullptr;
  bool of_b_;
  __m512i order_;
};

LOCKSTEP_AMX void split_rows(const Bf16x3Kernels::Split* tiles, int64_t count) {
  Splitter(tiles, count, /*of_b=*/false).finish();
}

// ---- Multiplying ----

// Eight tile registers of 16 rows of 64 bytes: 0 to 3 for c, 4 and 5 for A, 6 and 7 for B.
struct TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The instructions encode tile numbers, which must be constants. Hence a template, whose conditions
// are evaluated at compile time.
template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void load_a(const uint16_t* a, int64_t stride) {
  _tile_loadd(4, a, 64);
  if constexpr (kRowTiles == 2) _tile_loadd(5, a + stride, 64);
}
template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void load_b(const uint16_t* b) {
  _tile_loadd(6, b, 64);
  if constexpr (kColumnTiles == 2) _tile_loadd(7, b + kSplitElems, 64);
}
template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void add_products() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumnTiles == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRowTiles == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_dpbf16ps(3, 5, 7);
}

template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void multiply_tiles(
    const Bf16x3Kernels::Tiles& t, const uint16_t* a, float* c, int64_t steps, Splitter& splitter) {
  const int64_t c_bytes = t.c_stride * static_cast<int64_t>(sizeof(float));
  float* const below = c + kTileEdge * t.c_stride;
  if (t.accumulate) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kColumnTiles == 2) _tile_loadd(1, c + kTileEdge, c_bytes);
    if constexpr (kRowTiles == 2) _tile_loadd(2, below, c_bytes);
    if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_loadd(3, below + kTileEdge, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint16_t* b = t.b;
  for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
    if (t.fetcher != nullptr) t.fetcher->run();
    // One operand changes from each pair of parts to the next.
    load_a<kRowTiles, kColumnTiles>(a + 2 * kPartElems, t.a_stride);
    load_b<kRowTiles, kColumnTiles>(b);
    add_products<kRowTiles, kColumnTiles>();
    splitter.run(steps);
    load_a<kRowTiles, kColumnTiles>(a + kPartElems, t.a_stride);
    add_products<kRowTiles, kColumnTiles>();
    splitter.run(steps);
    load_b<kRowTiles, kColumnTiles>(b + kPartElems);
    add_products<kRowTiles, kColumnTiles>();
    splitter.run(steps);
    load_a<kRowTiles, kColumnTiles>(a, t.a_stride);
    add_products<kRowTiles, kColumnTiles>();
    splitter.run(steps);
    load_b<kRowTiles, kColumnTiles>(b + 2 * kPartElems);
    add_products<kRowTiles, kColumnTiles>();
    splitter.run(steps);
    load_b<kRowTiles, kColumnTiles>(b);
    add_products<kRowTiles, kColumnTiles>();
    splitter.run(steps);
    a += kSplitElems;
    b += kColumnTiles * kSplitElems;
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kColumnTiles == 2) _tile_stored(1, c + kTileEdge, c_bytes);
  if constexpr (kRowTiles == 2) _tile_stored(2, below, c_bytes);
  if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_stored(3, below + kTileEdge, c_bytes);
}

template <int kColumnTiles>
LOCKSTEP_AMX_INLINE void multiply_columns(const Bf16x3Kernels::Tiles& t) {
  Splitter splitter(t.next, t.next_count, t.next_of_b);
  const int64_t steps = (t.next_steps + 5) / 6;  // with each pair of parts
  int64_t i = 0;
  for (; i + 2 <= t.row_tiles; i += 2) {
    multiply_tiles<2, kColumnTiles>(
        t, t.a + i * t.a_stride, t.c + i * kTileEdge * t.c_stride, steps, splitter);
  }
  if (i < t.row_tiles) {
    multiply_tiles<1, kColumnTiles>(
        t, t.a + i * t.a_stride, t.c + i * kTileEdge * t.c_stride, steps, splitter);
  }
  splitter.finish();
}

LOCKSTEP_AMX void multiply(const Bf16x3Kernels::Tiles& t) {
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  if (t.column_tiles == 2) {
    multiply_columns<2>(t);
  } else {
    multiply_columns<1>(t);
  }
  // Context switches are cheaper for threads whose tile registers are released.
  _tile_release();
}

// ---- Whether there is AMX ----

bool usable() {
  uint32_t a, b, c, d;
  constexpr uint64_t kAvx512 = 0xe6, kTiles = 0x60000;
  if (!saves_registers(kAvx512 | kTiles)) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr uint32_t kFoundation = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;
  constexpr uint32_t kBmi2 = 1u << 8, kNeeded = kFoundation | kDq | kBw | kVl | kBmi2;
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((b & kNeeded) != kNeeded) return false;
  if ((d & (kAmxBf16 | kAmxTile)) != (kAmxBf16 | kAmxTile)) return false;
  // Linux permits the use of tiles only after the process has requested it.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Bf16x3Kernels* amx_bf16x3_kernels() {
  static constexpr Bf16x3Kernels kKernels = {
      "AMX", split_rows, pack_rows_as_columns, pack_depth, pack_depth_as_rows, multiply};
  static const bool kUsable = usable();
  return kUsable ? &kKernels : nullptr;
}

}  // namespace lockstep::cpu

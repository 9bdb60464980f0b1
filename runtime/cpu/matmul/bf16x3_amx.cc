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

// The bits of a mask for the first `count` of so many elements.
LOCKSTEP_AMX_INLINE uint32_t first(int64_t count, int64_t all) {
  return count <= 0 ? 0 : count >= all ? 0xffffffffu >> (32 - all) : (1u << count) - 1;
}

// Loads the first `count` of 16 floats, padded with zeros.
LOCKSTEP_AMX_INLINE __m512 load(const float* from, int64_t count) {
  if (from == nullptr || count <= 0) return _mm512_setzero_ps();
  if (count >= 16) return _mm512_loadu_ps(from);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(first(count, 16)), from);
}
// The same for bfloat16, as words.
LOCKSTEP_AMX_INLINE __m512i load(const BFloat16* from, int64_t count) {
  if (from == nullptr || count <= 0) return _mm512_setzero_si512();
  return _mm512_cvtepu16_epi32(
      _mm256_maskz_loadu_epi16(static_cast<__mmask16>(first(count, 16)), from));
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

// A row of a tile of A: the first `count` of 32 elements. `order` is consecutive_order().
LOCKSTEP_AMX_INLINE void store_row(const float* row, int64_t count, __m512i order, uint16_t* to) {
  store_parts(split(load(row, count)),
              split(load(row == nullptr ? nullptr : row + 16, count - 16)),
              order,
              to);
}
LOCKSTEP_AMX_INLINE void store_row(const BFloat16* row, int64_t count, __m512i, uint16_t* to) {
  const __m512i numbers =
      row == nullptr
          ? _mm512_setzero_si512()
          : _mm512_maskz_loadu_epi16(static_cast<__mmask32>(first(count, kTileDepth)), row);
  _mm512_store_si512(to, numbers);
}

// Two rows of the depth of a tile of B: the first `columns` of 16 elements. `order` is
// interleaved_order().
LOCKSTEP_AMX_INLINE void store_depth(
    const float* even, const float* odd, int64_t columns, __m512i order, uint16_t* to) {
  store_parts(split(load(even, columns)), split(load(odd, columns)), order, to);
}
LOCKSTEP_AMX_INLINE void store_depth(
    const BFloat16* even, const BFloat16* odd, int64_t columns, __m512i, uint16_t* to) {
  _mm512_store_si512(
      to, _mm512_or_si512(load(even, columns), _mm512_slli_epi32(load(odd, columns), 16)));
}

template <typename T>
LOCKSTEP_AMX void pack_rows(const T* const* rows, int64_t depth, uint16_t* to, int64_t stride) {
  const __m512i order = consecutive_order();
  for (int64_t k = 0; k < depth; k += kTileDepth, to += stride) {
    for (int64_t i = 0; i < kTileEdge; ++i)
      store_row(rows[i] == nullptr ? nullptr : rows[i] + k, depth - k, order, to + i * kTileDepth);
  }
}

template <typename T>
LOCKSTEP_AMX void pack_depth(const T* const* rows, int64_t columns, uint16_t* to) {
  const __m512i order = interleaved_order();
  for (int64_t k = 0; k < kTileDepth; k += 2, to += 2 * kTileEdge)
    store_depth(rows[k], rows[k + 1], columns, order, to);
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

template <typename T>
LOCKSTEP_AMX_INLINE void transpose_parts(const uint16_t* from, uint16_t* to) {
  for (int64_t p = 0; p < kPartsOf<T>; ++p)
    transpose_part(from + p * kPartElems, to + p * kPartElems);
}

template <typename T>
LOCKSTEP_AMX void pack_rows_as_columns(const T* const* rows,
                                       int64_t depth,
                                       uint16_t* to,
                                       int64_t stride) {
  constexpr int64_t kAhead = 4 * kTileDepth;
  alignas(64) uint16_t tile[kTileElems<T>];
  const T* some[kTileEdge];
  for (int64_t k = 0; k < depth; k += kTileDepth, to += stride) {
    for (int64_t i = 0; i < kTileEdge; ++i) {
      some[i] = rows[i] == nullptr ? nullptr : rows[i] + k;
      // The rows are far apart and little is read of each at a time, so the hardware prefetcher
      // does not predict them. The prefetched address may lie in the caller's next chunk or beyond
      // the array.
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(rows[i]) + (k + kAhead) * sizeof(T);
      __builtin_prefetch(reinterpret_cast<const void*>(ahead), 0, 3);
      if constexpr (sizeof(T) == sizeof(float))
        __builtin_prefetch(reinterpret_cast<const void*>(ahead + 64), 0, 3);
    }
    pack_rows(some, depth - k < kTileDepth ? depth - k : kTileDepth, tile, kTileElems<T>);
    transpose_parts<T>(tile, to);
  }
}

template <typename T>
LOCKSTEP_AMX void pack_depth_as_rows(const T* const* rows, int64_t columns, uint16_t* to) {
  alignas(64) uint16_t tile[kTileElems<T>];
  pack_depth(rows, columns, tile);
  transpose_parts<T>(tile, to);
}

// Splits tiles step by step, two vectors in each step: a row of A, or two of the depth of B.
template <typename T>
class Splitter {
 public:
  using Split = typename TileKernels<T>::Split;

  LOCKSTEP_AMX_INLINE Splitter(const Split* tiles, int64_t count, bool of_b)
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
    const auto from = [this](const T* row) __attribute__((always_inline)) {
      return row == nullptr ? row : row + k_;
    };
    if (of_b_) {
      store_depth(from(first_), from(second_), left, order_, to_);
    } else {
      store_row(from(first_), left, order_, to_);
    }
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
    const auto at = [this](const T* row) __attribute__((always_inline)) {
      return row == nullptr ? row : row + next_->offset;
    };
    const T* const* const rows = next_->rows;
    first_ = at(rows[of_b_ ? 2 * row_ : row_]);
    second_ = of_b_ ? at(rows[2 * row_ + 1]) : nullptr;
    to_ = next_->to + row_ * kTileDepth;
  }

  const Split *next_, *end_;
  int64_t row_ = 0, k_ = 0;  // position of the next step
  const T *first_ = nullptr, *second_ = nullptr;
  uint16_t* to_ = nullptr;
  bool of_b_;
  __m512i order_;
};

template <typename T>
LOCKSTEP_AMX void split_rows(const typename TileKernels<T>::Split* tiles, int64_t count) {
  Splitter<T>(tiles, count, /*of_b=*/false).finish();
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
template <typename T, int kColumnTiles>
LOCKSTEP_AMX_INLINE void load_b(const uint16_t* b) {
  _tile_loadd(6, b, 64);
  if constexpr (kColumnTiles == 2) _tile_loadd(7, b + kTileElems<T>, 64);
}
template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void add_products() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumnTiles == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRowTiles == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_dpbf16ps(3, 5, 7);
}

// The six pairs of parts of a chunk. One operand changes from each pair to the next.
template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void multiply_chunk(const TileKernels<float>::Tiles& t,
                                        const uint16_t* a,
                                        const uint16_t* b,
                                        int64_t steps,
                                        Splitter<float>& splitter) {
  load_a<kRowTiles, kColumnTiles>(a + 2 * kPartElems, t.a_stride);
  load_b<float, kColumnTiles>(b);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
  load_a<kRowTiles, kColumnTiles>(a + kPartElems, t.a_stride);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
  load_b<float, kColumnTiles>(b + kPartElems);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
  load_a<kRowTiles, kColumnTiles>(a, t.a_stride);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
  load_b<float, kColumnTiles>(b + 2 * kPartElems);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
  load_b<float, kColumnTiles>(b);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
}

template <int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void multiply_chunk(const TileKernels<BFloat16>::Tiles& t,
                                        const uint16_t* a,
                                        const uint16_t* b,
                                        int64_t steps,
                                        Splitter<BFloat16>& splitter) {
  load_a<kRowTiles, kColumnTiles>(a, t.a_stride);
  load_b<BFloat16, kColumnTiles>(b);
  add_products<kRowTiles, kColumnTiles>();
  splitter.run(steps);
}

template <typename T, int kRowTiles, int kColumnTiles>
LOCKSTEP_AMX_INLINE void multiply_tiles(const typename TileKernels<T>::Tiles& t,
                                        const uint16_t* a,
                                        float* c,
                                        int64_t steps,
                                        Splitter<T>& splitter) {
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
    multiply_chunk<kRowTiles, kColumnTiles>(t, a, b, steps, splitter);
    a += kTileElems<T>;
    b += kColumnTiles * kTileElems<T>;
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kColumnTiles == 2) _tile_stored(1, c + kTileEdge, c_bytes);
  if constexpr (kRowTiles == 2) _tile_stored(2, below, c_bytes);
  if constexpr (kRowTiles == 2 && kColumnTiles == 2) _tile_stored(3, below + kTileEdge, c_bytes);
}

template <typename T, int kColumnTiles>
LOCKSTEP_AMX_INLINE void multiply_columns(const typename TileKernels<T>::Tiles& t) {
  constexpr int64_t kRuns = kPartsOf<T> == 1 ? 1 : 6;  // of the splitter with each chunk
  Splitter<T> splitter(t.next, t.next_count, t.next_of_b);
  const int64_t steps = (t.next_steps + kRuns - 1) / kRuns;
  int64_t i = 0;
  for (; i + 2 <= t.row_tiles; i += 2) {
    multiply_tiles<T, 2, kColumnTiles>(
        t, t.a + i * t.a_stride, t.c + i * kTileEdge * t.c_stride, steps, splitter);
  }
  if (i < t.row_tiles) {
    multiply_tiles<T, 1, kColumnTiles>(
        t, t.a + i * t.a_stride, t.c + i * kTileEdge * t.c_stride, steps, splitter);
  }
  splitter.finish();
}

template <typename T>
LOCKSTEP_AMX void multiply(const typename TileKernels<T>::Tiles& t) {
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  if (t.column_tiles == 2) {
    multiply_columns<T, 2>(t);
  } else {
    multiply_columns<T, 1>(t);
  }
  // Context switches are cheaper for threads whose tile registers are released.
  _tile_release();
}

// The numbers are random, because products of zeros need less power and so permit higher clocks.
LOCKSTEP_AMX void multiply_in_registers(int64_t times) {
  static constexpr TileConfig kConfig;
  alignas(64) uint16_t numbers[4 * kPartElems];
  uint32_t state = 1;
  for (uint16_t& number : numbers) {
    state = state * 1664525 + 1013904223;
    number = static_cast<uint16_t>((state >> 16 & 0x807f) | 0x3f80);  // 1 to 2, or -1 to -2
  }
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  load_a<2, 2>(numbers, kPartElems);
  load_b<BFloat16, 2>(numbers + 2 * kPartElems);
  for (int64_t i = 0; i < times; ++i) add_products<2, 2>();
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

template <typename T>
const TileKernels<T>* amx_tile_kernels() {
  static constexpr TileKernels<T> kKernels = {"AMX",
                                              split_rows<T>,
                                              pack_rows_as_columns<T>,
                                              pack_depth<T>,
                                              pack_depth_as_rows<T>,
                                              multiply<T>,
                                              multiply_in_registers};
  static const bool kUsable = usable();
  return kUsable ? &kKernels : nullptr;
}
template const TileKernels<float>* amx_tile_kernels();
template const TileKernels<BFloat16>* amx_tile_kernels();

}  // namespace lockstep::cpu

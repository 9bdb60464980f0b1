#include "runtime/cpu/matmul/bf16_dot.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/cpu/matmul/saved_registers.h"

// Only this file is compiled for these instruction sets, because the processor may lack them.
#define LOCKSTEP_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define LOCKSTEP_DOT_INLINE LOCKSTEP_DOT __attribute__((always_inline)) inline

namespace lockstep::cpu {
namespace {

constexpr size_t kLanes = 16;  // pairs in a vector
constexpr size_t kRows = Bf16DotKernels::kTileRows;

// ---- Packing ----

// The first `count` <= 16 pairs that begin at `from`, element k + 1 of each in the lower half.
LOCKSTEP_DOT_INLINE __m512i load_pairs(const BFloat16* from, size_t count) {
  const auto mask = static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
  return _mm512_rol_epi32(_mm512_maskz_loadu_epi32(mask, from), 16);
}

// The pairs of two rows: those of element i of both, i < count <= 16.
LOCKSTEP_DOT_INLINE __m512i interleave(const BFloat16* upper, const BFloat16* lower, size_t count) {
  const auto mask = static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, upper));
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, lower));
  return _mm512_or_si512(_mm512_slli_epi32(high, 16), low);
}

// Transposes 16 x 16 words.
LOCKSTEP_DOT_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  // Now four words of each of four rows, for each quarter of a vector.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    t[i] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    t[i + 4] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// to[p * to_stride + i] = pair p of row i, of up to 16 rows, for all pairs of the depth. Stores
// full vectors.
LOCKSTEP_DOT_INLINE void pack_rows_of_pairs(const BFloat16* from,
                                            size_t stride,
                                            size_t rows,
                                            size_t pairs,
                                            uint32_t* to,
                                            size_t to_stride) {
  for (size_t p = 0; p < pairs; p += kLanes) {
    const size_t some = std::min(kLanes, pairs - p);
    __m512i r[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i)
      r[i] = i < rows ? load_pairs(from + i * stride + 2 * p, some) : _mm512_setzero_si512();
    transpose(r);
#pragma GCC unroll 16
    for (size_t k = 0; k < 16; ++k) {
      if (k < some) _mm512_storeu_si512(to + (p + k) * to_stride, r[k]);
    }
  }
}

LOCKSTEP_DOT void pack_rows(GemmOperand a, size_t rows, size_t depth, uint32_t* to) {
  const auto stride = static_cast<size_t>(a.stride);
  const size_t pairs = depth / 2;
  for (size_t i = 0; i < rows; i += kRows, to += kRows * pairs) {
    const size_t some = std::min(kRows, rows - i);
    if (!a.transposed) {
      pack_rows_of_pairs(a.halves + i * stride, stride, some, pairs, to, some);
      continue;
    }
    for (size_t p = 0; p < pairs; ++p) {
      const BFloat16* const from = a.halves + 2 * p * stride + i;
      _mm512_storeu_si512(to + p * some, interleave(from, from + stride, some));
    }
  }
}

LOCKSTEP_DOT void pack_panel(GemmOperand b, size_t columns, size_t depth, uint32_t* to) {
  const auto stride = static_cast<size_t>(b.stride);
  const size_t pairs = depth / 2, width = (columns + kLanes - 1) / kLanes * kLanes;
  for (size_t j = 0; j < columns; j += kLanes) {
    const size_t some = std::min(kLanes, columns - j);
    if (b.transposed) {
      pack_rows_of_pairs(b.halves + j * stride, stride, some, pairs, to + j, width);
      continue;
    }
    for (size_t p = 0; p < pairs; ++p) {
      const BFloat16* const from = b.halves + 2 * p * stride + j;
      _mm512_storeu_si512(to + p * width + j, interleave(from, from + stride, some));
    }
  }
}

// ---- Multiplying ----

template <size_t kTileRows, size_t kVectors>
LOCKSTEP_DOT void multiply_tiles(const Bf16DotKernels::Tiles& t) {
  const uint32_t* a = t.a;
  float* c = t.c;
  for (size_t tile = 0; tile < t.tiles; ++tile) {
    __m512 sum[kTileRows][kVectors];
#pragma GCC unroll 12
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (size_t v = 0; v < kVectors; ++v)
        sum[i][v] =
            t.accumulate ? _mm512_loadu_ps(c + i * t.c_stride + v * kLanes) : _mm512_setzero_ps();
    }
    const uint32_t* b = t.b;
    for (size_t p = 0; p < t.pairs; ++p, a += kTileRows, b += kVectors * kLanes) {
      __m512bh row[kVectors];
#pragma GCC unroll 2
      for (size_t v = 0; v < kVectors; ++v)
        row[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + v * kLanes));
#pragma GCC unroll 12
      for (size_t i = 0; i < kTileRows; ++i) {
        const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[i])));
#pragma GCC unroll 2
        for (size_t v = 0; v < kVectors; ++v)
          sum[i][v] = _mm512_dpbf16_ps(sum[i][v], factor, row[v]);
      }
    }
#pragma GCC unroll 12
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (size_t v = 0; v < kVectors; ++v)
        _mm512_storeu_ps(c + i * t.c_stride + v * kLanes, sum[i][v]);
    }
    c += kTileRows * t.c_stride;
  }
}

using Multiply = void (*)(const Bf16DotKernels::Tiles&);

template <size_t kVectors, size_t... kTileRows>
constexpr std::array<Multiply, sizeof...(kTileRows)> kernels_of(std::index_sequence<kTileRows...>) {
  return {multiply_tiles<kTileRows + 1, kVectors>...};
}

void multiply(const Bf16DotKernels::Tiles& t) {
  constexpr auto kAll = std::make_index_sequence<kRows>();
  static constexpr std::array<Multiply, kRows> kByVectors[] = {kernels_of<1>(kAll),
                                                               kernels_of<2>(kAll)};
  kByVectors[t.vectors - 1][t.rows - 1](t);
}

// ---- Whether to use them ----

bool has_instructions() {
  uint32_t a, b, c, d;
  constexpr uint64_t kAvx512 = 0xe6;
  if (!saves_registers(kAvx512)) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr uint32_t kNeeded = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
  if ((b & kNeeded) != kNeeded) return false;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a >> 5 & 1) != 0;
}

bool is_amd() {
  uint32_t a, words[3];
  if (__get_cpuid(0, &a, &words[0], &words[2], &words[1]) == 0) return false;
  char name[12];
  std::memcpy(name, words, sizeof name);
  return std::string_view(name, sizeof name) == "AuthenticAMD";
}

constexpr Bf16DotKernels kKernels = {pack_rows, pack_panel, multiply};

// Whether a product of numbers of many magnitudes has the bits of fused multiply-adds.
bool gives_the_bits() {
  constexpr size_t kColumns = Bf16DotKernels::kTileColumns, kDepth = 64;
  BFloat16 x[kRows * kDepth], w[kColumns * kDepth];
  uint32_t state = 1;
  const auto fill = [&state](BFloat16* numbers, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      state = state * 1664525 + 1013904223;
      numbers[i].bits = static_cast<uint16_t>((state >> 8 & 0x807f) | (120 + (state >> 28)) << 7);
    }
  };
  fill(x, kRows * kDepth);
  fill(w, kColumns * kDepth);
  uint32_t a[kRows * kDepth / 2 + kLanes], b[kColumns * kDepth / 2];
  float c[kRows * kColumns];
  pack_rows({x, kDepth}, kRows, kDepth, a);
  pack_panel({w, kDepth, /*transposed=*/true}, kColumns, kDepth, b);
  multiply({.tiles = 1,
            .rows = kRows,
            .vectors = kColumns / kLanes,
            .pairs = kDepth / 2,
            .a = a,
            .b = b,
            .c = c,
            .c_stride = kColumns,
            .accumulate = false});
  for (size_t i = 0; i < kRows * kColumns; ++i) {
    float sum = 0;
    for (size_t k = 0; k < kDepth; ++k)
      sum = std::fma(
          to_float(x[i / kColumns * kDepth + k]), to_float(w[i % kColumns * kDepth + k]), sum);
    if (std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(c[i])) return false;
  }
  return true;
}

bool usable() {
  static const bool right = has_instructions() && gives_the_bits();
  return right;
}

const Bf16DotKernels*& chosen() {
  static const Bf16DotKernels* kernels = usable() && is_amd() ? &kKernels : nullptr;
  return kernels;
}

}  // namespace

const Bf16DotKernels* bf16_dot_kernels() { return chosen(); }

ScopedBf16Dot::ScopedBf16Dot() : before_(chosen()) {
  if (available()) chosen() = &kKernels;
}
ScopedBf16Dot::~ScopedBf16Dot() { chosen() = before_; }
bool ScopedBf16Dot::available() { return usable(); }

}  // namespace lockstep::cpu

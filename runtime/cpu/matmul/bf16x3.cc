#include "runtime/cpu/matmul/bf16x3.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/cpu/matmul/flush_to_zero.h"

#include "runtime/cpu/simd_level.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/bf16x3.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// The kernels for any processor. Only the products are vectorised.

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kRowsTogether = 4;

// sum += even + odd, for one part of a tile of A, as floats, and one part of a tile of B.
HWY_INLINE void add_tile_product(const float* a, const uint16_t* b, float* sum) {
  const hn::CappedTag<float, kTileEdge> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const auto upper = hn::Set(bits, 0xffff0000u);
  for (size_t column = 0; column < kTileEdge; column += hn::Lanes(d)) {
    for (size_t row = 0; row < kTileEdge; row += kRowsTogether) {
      hn::Vec<decltype(d)> even[kRowsTogether], odd[kRowsTogether];
      HWY_UNROLL(4)
      for (size_t i = 0; i < kRowsTogether; ++i) even[i] = odd[i] = hn::Zero(d);
      for (size_t k = 0; k < kTileDepth; k += 2) {
        const auto pair =
            hn::LoadU(bits, reinterpret_cast<const uint32_t*>(b + k * kTileEdge) + column);
        const auto b_even = hn::BitCast(d, hn::ShiftLeft<16>(pair));
        const auto b_odd = hn::BitCast(d, hn::And(pair, upper));
        HWY_UNROLL(4)
        for (size_t i = 0; i < kRowsTogether; ++i) {
          const float* const at = a + (row + i) * kTileDepth + k;
          even[i] = hn::MulAdd(hn::Set(d, at[0]), b_even, even[i]);
          odd[i] = hn::MulAdd(hn::Set(d, at[1]), b_odd, odd[i]);
        }
      }
      HWY_UNROLL(4)
      for (size_t i = 0; i < kRowsTogether; ++i) {
        float* const to = sum + (row + i) * kTileEdge + column;
        hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Add(even[i], odd[i])), d, to);
      }
    }
  }
}

struct PartPair {
  int64_t a, b;
};
// The pairs of parts that are multiplied, in their order.
template <typename T>
constexpr auto part_pairs() {
  if constexpr (kPartsOf<T> == 1) {
    return std::array{PartPair{0, 0}};
  } else {
    return std::array{PartPair{2, 0},
                      PartPair{1, 0},
                      PartPair{1, 1},
                      PartPair{0, 1},
                      PartPair{0, 2},
                      PartPair{0, 0}};
  }
}

// The products of a row tile and a column tile.
template <typename T>
HWY_NOINLINE void multiply_tile(const typename TileKernels<T>::Tiles& t,
                                int64_t row_tile,
                                int64_t column) {
  float* const c = t.c + row_tile * kTileEdge * t.c_stride + column * kTileEdge;
  alignas(64) float sum[kTileEdge * kTileEdge] = {};
  for (int64_t i = 0; i < kTileEdge && t.accumulate; ++i)
    std::copy_n(c + i * t.c_stride, kTileEdge, sum + i * kTileEdge);
  const uint16_t* a = t.a + row_tile * t.a_stride;
  for (int64_t chunk = 0; chunk < t.chunks; ++chunk, a += kTileElems<T>) {
    const uint16_t* const b = t.b + (chunk * t.column_tiles + column) * kTileElems<T>;
    alignas(64) float parts[kTileElems<T>];
    for (int64_t i = 0; i < kTileElems<T>; ++i)
      parts[i] = std::bit_cast<float>(uint32_t{a[i]} << 16);
    for (const auto [i, j] : part_pairs<T>())
      add_tile_product(parts + i * kPartElems, b + j * kPartElems, sum);
  }
  for (int64_t i = 0; i < kTileEdge; ++i)
    std::copy_n(sum + i * kTileEdge, kTileEdge, c + i * t.c_stride);
}

template <typename T>
HWY_INLINE void multiply_all_tiles(const typename TileKernels<T>::Tiles& t) {
  for (int64_t row_tile = 0; row_tile < t.row_tiles; ++row_tile) {
    for (int64_t column = 0; column < t.column_tiles; ++column)
      multiply_tile<T>(t, row_tile, column);
  }
}

void multiply_split(const TileKernels<float>::Tiles& t) { multiply_all_tiles<float>(t); }
void multiply_halves(const TileKernels<BFloat16>::Tiles& t) { multiply_all_tiles<BFloat16>(t); }

// Whether this target is AVX-512.
bool is_wide() { return HWY_TARGET <= HWY_AVX3; }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(multiply_split);
HWY_EXPORT(multiply_halves);
HWY_EXPORT(is_wide);

namespace {

template <typename T>
struct Parts {
  uint16_t part[kPartsOf<T>];
};

Parts<float> split(float x) {
  Parts<float> parts;
  for (uint16_t& part : parts.part) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    // The last part is exact; rounding it could turn NaN into a number.
    const uint32_t upper = (&part == &parts.part[2] ? bits : bits + 0x8000) & 0xffff0000;
    part = static_cast<uint16_t>(upper >> 16);
    x -= std::bit_cast<float>(upper);
  }
  return parts;
}
Parts<BFloat16> split(BFloat16 x) { return {{x.bits}}; }

// Fills a tile: element(edge, k) is the number at depth k of a row of A, or of a column of B.
template <typename T, typename Element>
void pack_tile(const Element& element, bool of_b, uint16_t* to) {
  for (int64_t edge = 0; edge < kTileEdge; ++edge) {
    for (int64_t k = 0; k < kTileDepth; ++k) {
      const Parts<T> parts = split(element(edge, k));
      const int64_t at = of_b ? k / 2 * 2 * kTileEdge + edge * 2 + k % 2 : edge * kTileDepth + k;
      for (int64_t p = 0; p < kPartsOf<T>; ++p) to[p * kPartElems + at] = parts.part[p];
    }
  }
}

template <typename T>
void pack_rows_as_columns(const T* const* rows, int64_t depth, uint16_t* to, int64_t stride) {
  for (int64_t begin = 0; begin < depth; begin += kTileDepth, to += stride) {
    const auto element = [&](int64_t i, int64_t k) {
      return rows[i] == nullptr || begin + k >= depth ? T{} : rows[i][begin + k];
    };
    pack_tile<T>(element, /*of_b=*/true, to);
  }
}

template <typename T, bool kOfB>
void pack_depth(const T* const* rows, int64_t columns, uint16_t* to) {
  const auto element = [&](int64_t j, int64_t k) {
    return rows[k] == nullptr || j >= columns ? T{} : rows[k][j];
  };
  pack_tile<T>(element, kOfB, to);
}

template <typename T>
void split_tiles(const typename TileKernels<T>::Split* tiles, int64_t count, bool of_b) {
  for (const auto& tile : std::span(tiles, static_cast<size_t>(count))) {
    uint16_t* to = tile.to;
    for (int64_t begin = 0; begin < tile.count; begin += kTileDepth, to += tile.stride) {
      const auto element = [&](int64_t edge, int64_t k) {
        const auto [row, at] = of_b ? std::pair(k, edge) : std::pair(edge, begin + k);
        const bool exists = tile.rows[row] != nullptr && at < tile.count;
        return exists ? tile.rows[row][tile.offset + at] : T{};
      };
      pack_tile<T>(element, of_b, to);
    }
  }
}

template <typename T>
void split_rows(const typename TileKernels<T>::Split* tiles, int64_t count) {
  split_tiles<T>(tiles, count, /*of_b=*/false);
}

template <typename T>
void multiply(const typename TileKernels<T>::Tiles& tiles) {
  split_tiles<T>(tiles.next, tiles.next_count, tiles.next_of_b);
  const FlushToZero flush;
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(multiply_split)(tiles);
  } else {
    HWY_DYNAMIC_DISPATCH(multiply_halves)(tiles);
  }
}

}  // namespace

template <typename T>
const TileKernels<T>& portable_tile_kernels() {
  static constexpr TileKernels<T> kKernels = {"no matrix unit",
                                              split_rows<T>,
                                              pack_rows_as_columns<T>,
                                              pack_depth<T, /*kOfB=*/true>,
                                              pack_depth<T, /*kOfB=*/false>,
                                              multiply<T>};
  return kKernels;
}
template const TileKernels<float>& portable_tile_kernels();
template const TileKernels<BFloat16>& portable_tile_kernels();

template <typename T>
const TileKernels<T>& tile_kernels() {
  // If a test disables AVX-512, AMX is not used either.
  const bool amx = simd_level() == SimdLevel::kAmx && HWY_DYNAMIC_DISPATCH(is_wide)();
  return amx ? *amx_tile_kernels<T>() : portable_tile_kernels<T>();
}
template const TileKernels<float>& tile_kernels();
template const TileKernels<BFloat16>& tile_kernels();

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

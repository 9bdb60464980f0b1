#include "runtime/cpu/matmul/tile_units.h"

#include <cstring>
#include <utility>
#include <vector>

#include "runtime/cpu/matmul/bf16x3_operands.h"
#include "runtime/cpu/simd_level.h"

namespace lockstep::cpu::tiles {
namespace {

using Numbers = BFloat16;

// Multiplies 32 x 64 by 64 x 32 numbers of many magnitudes.
std::vector<float> trial(const TileKernels<Numbers>& kernels) {
  constexpr int64_t kEdge = 2 * kTileEdge, kChunks = 2, kDepth = kChunks * kTileDepth;
  std::vector<Numbers> x(kEdge * kDepth), w(kEdge * kDepth);
  uint32_t state = 1;
  for (std::vector<Numbers>* numbers : {&x, &w}) {
    for (Numbers& number : *numbers) {
      state = state * 1664525 + 1013904223;
      const auto exponent = static_cast<uint16_t>(120 + (state >> 28));
      number.bits = static_cast<uint16_t>((state >> 8 & 0x807f) | exponent << 7);
    }
  }
  alignas(64) uint16_t a[2 * kChunks * kTileElems<Numbers>], b[2 * kChunks * kTileElems<Numbers>];
  for (int64_t tile = 0; tile < 2; ++tile) {
    const RowPointers<kTileEdge, Numbers> rows(
        x.data() + tile * kTileEdge * kDepth, kDepth, kTileEdge);
    const TileKernels<Numbers>::Split split = {
        rows.rows, 0, kDepth, a + tile * kChunks * kTileElems<Numbers>, kTileElems<Numbers>};
    kernels.split_rows(&split, 1);
    const RowPointers<kTileEdge, Numbers> columns(
        w.data() + tile * kTileEdge * kDepth, kDepth, kTileEdge);
    kernels.pack_rows_as_columns(
        columns.rows, kDepth, b + tile * kTileElems<Numbers>, 2 * kTileElems<Numbers>);
  }
  std::vector<float> c(kEdge * kEdge);
  kernels.multiply({.row_tiles = 2,
                    .column_tiles = 2,
                    .chunks = kChunks,
                    .a = a,
                    .a_stride = kChunks * kTileElems<Numbers>,
                    .b = b,
                    .c = c.data(),
                    .c_stride = kEdge,
                    .accumulate = false});
  return c;
}

bool gives_the_bits(const TileKernels<Numbers>& kernels) {
  const std::vector<float> found = trial(kernels),
                           expected = trial(portable_tile_kernels<Numbers>());
  return std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0;
}

bool& multiplies() {
  static bool right = simd_level() == SimdLevel::kAmx && amx_tile_kernels<Numbers>() != nullptr &&
                      gives_the_bits(*amx_tile_kernels<Numbers>());
  return right;
}

}  // namespace

bool available() { return multiplies(); }

ScopedTiles::ScopedTiles(bool chosen) : before_(std::exchange(multiplies(), chosen)) {}
ScopedTiles::~ScopedTiles() { multiplies() = before_; }

}  // namespace lockstep::cpu::tiles

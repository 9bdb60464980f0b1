// Products on bfloat16 matrix units promise bits: those of a scalar loop in a fixed order
// (tests/reference/bf16x3.h), from the kernels of every processor and for every way to cut a
// product into pieces. So the tests compare bits; of NaN only that it is NaN. They would catch
// another order of sums, a rounding too many, a denormal number that counts, a part of a float in a
// wrong place, and sums lost or added twice at a border.

#include "runtime/cpu/matmul/bf16x3.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/simd_level.h"
#include "tests/kernels/bf16x3_cases.h"

namespace lockstep::cpu {
namespace {

using test::kAllSizes;

// ---- What a test needs to run ----

std::vector<const Bf16x3Kernels*> all_kernels() {
  std::vector<const Bf16x3Kernels*> all = {&portable_bf16x3_kernels()};
  if (amx_bf16x3_kernels() != nullptr) all.push_back(amx_bf16x3_kernels());
  return all;
}
// Tests that compare AMX with the portable kernels.
class Bf16x3Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (amx_bf16x3_kernels() == nullptr) GTEST_SKIP() << "skipped: this process has no AMX";
  }
};
// ---- Splitting ----

// Rows of floats that end where their memory ends; those of `absent` have none.
class Rows {
 public:
  Rows(int64_t count, int64_t length, uint32_t absent, Sizes sizes) {
    for (int64_t i = 0; i < count; ++i) {
      rows_.push_back(std::make_unique<Guarded<float>>(length, i % 4));
      test::fill_sizes(*rows_[i], sizes, 7 + i);
      pointers_.push_back((absent >> i & 1) != 0 ? nullptr : rows_[i]->data());
    }
  }
  const float* const* pointers() const { return pointers_.data(); }
  float at(int64_t row, int64_t i) const {
    return pointers_[row] == nullptr || i >= rows_[row]->size() ? 0.0f : pointers_[row][i];
  }

 private:
  std::vector<std::unique_ptr<Guarded<float>>> rows_;
  std::vector<const float*> pointers_;
};

// The ways to fill tiles.
enum class Packing {
  kRowsAsColumns,
  kDepth,
  kDepthAsRows,
  kListedRows,
  kRowsMeanwhile,
  kDepthMeanwhile
};

// Whether the rows are 32 of the depth, for one tile, or 16 along the depth.
bool of_depth(Packing way) {
  return way == Packing::kDepth || way == Packing::kDepthAsRows || way == Packing::kDepthMeanwhile;
}
bool of_b(Packing way) {
  return way == Packing::kRowsAsColumns || way == Packing::kDepth ||
         way == Packing::kDepthMeanwhile;
}

// Calls body(way, length, absent rows) for tiles that are full and tiles that are not.
template <typename Body>
void for_each_packing(const Body& body) {
  for (int way = 0; way <= static_cast<int>(Packing::kDepthMeanwhile); ++way) {
    for (int64_t length = 1; length <= (of_depth(Packing{way}) ? 16 : 70); ++length) {
      for (uint32_t absent : {0u, 0x8000u, 0xfff0fffeu, 0x5a5aa5a5u})
        body(Packing{way}, length, absent);
    }
  }
}

// In one entry, or in two of which the first has one tile.
std::vector<Bf16x3Kernels::Split> list_tiles(const Rows& rows,
                                             int64_t length,
                                             uint16_t* to,
                                             int64_t stride) {
  if (length <= kTileDepth || length % 2 == 0) return {{rows.pointers(), 0, length, to, stride}};
  return {{rows.pointers(), 0, kTileDepth, to, stride},
          {rows.pointers(), kTileDepth, length - kTileDepth, to + stride, stride}};
}

// Splits the tiles while zeros are multiplied.
void split_meanwhile(const Bf16x3Kernels& kernels,
                     const std::vector<Bf16x3Kernels::Split>& tiles,
                     int64_t steps,
                     bool of_b) {
  alignas(64) static constexpr uint16_t kZeros[2 * kSplitElems] = {};
  float c[kTileEdge * kTileEdge];
  kernels.multiply({.row_tiles = 1,
                    .column_tiles = 1,
                    .chunks = 2,
                    .a = kZeros,
                    .a_stride = 0,
                    .b = kZeros,
                    .c = c,
                    .c_stride = kTileEdge,
                    .accumulate = false,
                    .next = tiles.data(),
                    .next_count = static_cast<int64_t>(tiles.size()),
                    .next_steps = steps,
                    .next_of_b = of_b});
}

// The tiles, and what lies between them, which must stay as it was.
std::vector<uint16_t> packed(
    const Bf16x3Kernels& kernels, Packing way, const Rows& rows, int64_t length, int64_t stride) {
  const int64_t count = of_depth(way) ? 1 : ceil_div(length, kTileDepth);
  Guarded<uint16_t> to((count - 1) * stride + kSplitElems);
  const auto tiles = list_tiles(rows, length, to.data(), stride);
  switch (way) {
    case Packing::kRowsAsColumns:
      kernels.pack_rows_as_columns(rows.pointers(), length, to.data(), stride);
      break;
    case Packing::kDepth: kernels.pack_depth(rows.pointers(), length, to.data()); break;
    case Packing::kDepthAsRows:
      kernels.pack_depth_as_rows(rows.pointers(), length, to.data());
      break;
    case Packing::kListedRows:
      kernels.split_rows(tiles.data(), static_cast<int64_t>(tiles.size()));
      break;
    // Slower than the products, as fast, or faster.
    case Packing::kRowsMeanwhile:
    case Packing::kDepthMeanwhile: split_meanwhile(kernels, tiles, length % 30, of_b(way)); break;
  }
  return to.copy();
}

std::string name_of(const Bf16x3Kernels* kernels, Packing way, int64_t length, uint32_t absent) {
  return kernels->name + (", way " + std::to_string(static_cast<int>(way))) + ", " +
         std::to_string(length) + " elements, absent " + std::to_string(absent);
}

constexpr int64_t kWideStride = kSplitElems + 64;
constexpr uint16_t kUntouched = 0xa5a5;

// Compares all of the tiles with the split of the rows' floats, and returns a fault or nothing.
std::string fault_of_tiles(const std::vector<uint16_t>& tiles, Packing way, const Rows& rows) {
  for (int64_t i = 0; i < static_cast<int64_t>(tiles.size()); i += kWideStride) {
    const int64_t begin = i / kWideStride * kTileDepth;
    for (int64_t edge = 0; edge < kTileEdge; ++edge) {
      for (int64_t k = 0; k < kTileDepth; ++k) {
        const float x = of_depth(way) ? rows.at(k, edge) : rows.at(edge, begin + k);
        const SplitFloat expected = x;
        bool right = !std::isnan(x);  // of NaN, some part is NaN
        for (int64_t part = 0; part < kTileParts; ++part) {
          const float actual = from_bf16(tiles[i + place_in_tile(of_b(way), part, edge, k)]);
          right = std::isnan(x) ? right || std::isnan(actual)
                                : right && test::same_number(actual, expected.part[part]);
        }
        if (!right) return "at " + std::to_string(edge) + ", " + std::to_string(begin + k);
      }
    }
    const int64_t next = std::min<int64_t>(tiles.size(), i + kWideStride);
    for (int64_t gap = i + kSplitElems; gap < next; ++gap)
      if (tiles[gap] != kUntouched) return "between tiles";
  }
  return "";
}

TEST(Bf16x3Split, PartsAddUpToTheFloat) {
  // Catches a part that is rounded where it should be exact.
  for (const Bf16x3Kernels* kernels : all_kernels()) {
    const int64_t depth = 128 * kTileDepth;
    Guarded<float> row(depth);
    const RngStream stream{.seed = 1, .purpose = kRngSynthetic};
    for (int64_t k = 0; k < depth; ++k) {
      const uint32_t word = philox_word(stream, 2 * k), exponent = philox_word(stream, 2 * k + 1);
      // Every other one is halfway between two bfloat16 numbers, or nearly so.
      const uint32_t mantissa = k % 2 == 0 ? word : (word & 0xffff0000) + 0x7fff + word % 3;
      row[k] = std::bit_cast<float>((mantissa & 0x807fffff) | (27 + exponent % 221) << 23);
    }
    const float* rows[kTileEdge] = {row.data()};
    Guarded<uint16_t> tiles(128 * kSplitElems);
    const Bf16x3Kernels::Split all = {rows, 0, depth, tiles.data(), kSplitElems};
    kernels->split_rows(&all, 1);
    for (int64_t k = 0; k < depth; ++k) {
      double sum = 0;
      for (int64_t part = 0; part < kTileParts; ++part) {
        sum += from_bf16(
            tiles[k / kTileDepth * kSplitElems + place_in_tile(false, part, 0, k % kTileDepth)]);
      }
      ASSERT_EQ(sum, row[k]) << kernels->name;
    }
  }
}

TEST(Bf16x3Split, TilesHoldThePartsOfTheirFloats) {
  // Catches wrong rounding, parts in wrong places, what lies behind a row's end in a tile, tiles
  // that are left over, and writes between tiles.
  for (const Bf16x3Kernels* kernels : all_kernels()) {
    for_each_packing([&](Packing way, int64_t length, uint32_t absent) {
      const Rows rows(of_depth(way) ? 32 : 16, length, absent, kAllSizes[length % 4]);
      const auto tiles = packed(*kernels, way, rows, length, kWideStride);
      EXPECT_EQ(fault_of_tiles(tiles, way, rows), "") << name_of(kernels, way, length, absent);
    });
  }
}

TEST_F(Bf16x3Amx, TilesAreThePortableOnes) {
  const auto numbers = [](const Bf16x3Kernels& kernels, Packing way, const Rows& rows, int64_t n) {
    std::vector<float> result;
    for (uint16_t bits : packed(kernels, way, rows, n, kSplitElems))
      result.push_back(from_bf16(bits));
    return result;
  };
  for_each_packing([&](Packing way, int64_t length, uint32_t absent) {
    const Rows rows(of_depth(way) ? 32 : 16, length, absent, Sizes::kSomeBits);
    test::expect_same_numbers(numbers(*amx_bf16x3_kernels(), way, rows, length),
                              numbers(portable_bf16x3_kernels(), way, rows, length),
                              name_of(amx_bf16x3_kernels(), way, length, absent));
  });
}
// ---- Products of tiles ----

// Calls body(size, accumulate) for up to 5 x 2 tiles.
template <typename Body>
void for_each_size_of_tiles(const Body& body) {
  for (int64_t row_tiles = 1; row_tiles <= 5; ++row_tiles) {
    for (int64_t column_tiles : {1, 2}) {
      for (int64_t chunks = 1; chunks <= 5; ++chunks) {
        for (bool accumulate : {false, true})
          body(Size{row_tiles * kTileEdge, column_tiles * kTileEdge, chunks * kTileDepth},
               accumulate);
      }
    }
  }
}

TEST(Bf16x3Multiply, PortableProductsAreExact) {
  int64_t number = 0;
  for_each_size_of_tiles([&](Size size, bool accumulate) {
    if (++number % 3 != 0) return;  // enough for all kinds of them, and fast
    const Sizes sizes = kAllSizes[number / 2 % 4];
    const Product product(size, accumulate, number % 3, number % 5, sizes);
    const std::vector<float> expected = product.expected();
    test::for_each_target_of(sizes, [&](const std::string& target) {
      test::expect_same_numbers(product.of_tiles(portable_bf16x3_kernels(), number % 2 * 96),
                                expected,
                                product.name() + " on " + target);
    });
  });
}

TEST_F(Bf16x3Amx, ProductsAreThePortableOnes) {
  int64_t number = 0;
  for_each_size_of_tiles([&](Size size, bool accumulate) {
    for (Sizes sizes : kAllSizes) {
      ++number;
      const Product product(size, accumulate, number % 3, number % 5, sizes);
      test::expect_same_numbers(product.of_tiles(*amx_bf16x3_kernels(), number % 7 * 32),
                                product.of_tiles(portable_bf16x3_kernels(), 0),
                                product.name());
    }
  });
}

// x0 y0 + x1 y1 of bfloat16 numbers, computed in this order.
float sum_of_two(const Bf16x3Kernels& kernels, float x0, float y0, float x1, float y1) {
  Guarded<uint16_t> a(kSplitElems), b(kSplitElems);
  Guarded<float> c(kTileEdge * kTileEdge);
  std::fill(a.begin(), a.end(), uint16_t{0});
  std::fill(b.begin(), b.end(), uint16_t{0});
  put_in_tile(x0, false, 0, 4, a.data());
  put_in_tile(y0, true, 0, 4, b.data());
  put_in_tile(x1, false, 0, 6, a.data());
  put_in_tile(y1, true, 0, 6, b.data());
  kernels.multiply({.row_tiles = 1,
                    .column_tiles = 1,
                    .chunks = 1,
                    .a = a.data(),
                    .a_stride = kSplitElems,
                    .b = b.data(),
                    .c = c.data(),
                    .c_stride = kTileEdge,
                    .accumulate = false});
  return c[0];
}

TEST_F(Bf16x3Fused, SumsAreFlushedWhenTheyHaveBeenRounded) {
  // Just below 2^-126 a sum is zero, unless 24 bits round it up to 2^-126. Kernels that asked
  // before they round, or that round to the bits of a denormal number, would differ.
  for (const Bf16x3Kernels* kernels : all_kernels()) {
    for (int quarters = 0; quarters <= 8; ++quarters) {
      const float less = -0x1p-77f * static_cast<float>(quarters);  // quarters of 2^-150 below
      const float sum = sum_of_two(*kernels, 0x1p-63f, 0x1p-63f, less, 0x1p-75f);
      EXPECT_EQ(sum, quarters <= 2 ? 0x1p-126f : 0.0f) << kernels->name << ": " << quarters;
      EXPECT_EQ(sum, test::flushing_fma(less, 0x1p-75f, 0x1p-126f)) << kernels->name;
    }
  }
}

TEST(Bf16x3Multiply, LeavesTheModeOfArithmeticAlone) {
  // Kernels flush denormal numbers to zero; the rest of the program must not.
  for (const Bf16x3Kernels* kernels : all_kernels()) {
    volatile float tiny = 0x1p-126f;
    EXPECT_EQ(sum_of_two(*kernels, 2, 3, 4, 5), 26.0f);
    EXPECT_GT(tiny / 2, 0.0f) << kernels->name;
  }
}

TEST(Bf16x3Multiply, SplitsTheTilesThatLaterRowTilesNeed) {
  // Tiles of A that are split only while those above them are multiplied: catches a step too late,
  // or products that read them too early.
  const int64_t chunks = 3, row_tiles = 5, depth = chunks * kTileDepth, stride = 3 * kSplitElems;
  const Rows columns(kTileEdge, depth, 0, Sizes::kUniform);
  for (const Bf16x3Kernels* kernels : all_kernels()) {
    Guarded<uint16_t> a(row_tiles * stride), b(stride);
    Guarded<float> c(row_tiles * kTileEdge * kTileEdge), expected(c.size());
    kernels->pack_rows_as_columns(columns.pointers(), depth, b.data(), kSplitElems);
    std::vector<Rows> rows;
    std::vector<Bf16x3Kernels::Split> next;
    for (int64_t tile = 0; tile < row_tiles; ++tile) {
      rows.emplace_back(kTileEdge, depth, 1u << tile, Sizes::kUniform);
      uint16_t* const to = a.data() + tile * stride;
      const auto tiles = list_tiles(rows[tile], depth, to, kSplitElems);
      if (tile < 2) kernels->split_rows(tiles.data(), static_cast<int64_t>(tiles.size()));
      if (tile >= 2) next.insert(next.end(), tiles.begin(), tiles.end());
    }
    Bf16x3Kernels::Tiles tiles = {.row_tiles = row_tiles,
                                  .column_tiles = 1,
                                  .chunks = chunks,
                                  .a = a.data(),
                                  .a_stride = stride,
                                  .b = b.data(),
                                  .c = c.data(),
                                  .c_stride = kTileEdge,
                                  .accumulate = false,
                                  .next = next.data(),
                                  .next_count = static_cast<int64_t>(next.size()),
                                  .next_steps = 2 * kTileEdge};
    kernels->multiply(tiles);
    tiles.c = expected.data();
    tiles.next_count = 0;
    kernels->multiply(tiles);  // with all of them split
    test::expect_same_bits(c, expected, kernels->name);
  }
}

TEST(Bf16x3Kernels, FastestIsChosen) {
  // Tests that leave an instruction set out must get other kernels.
  if (test::cpu_has(HWY_AVX2)) {
    test::ScopedTarget scope(HWY_AVX2);
    EXPECT_EQ(&bf16x3_kernels(), &portable_bf16x3_kernels());
  }
  const bool amx = simd_level() == SimdLevel::kAmx && test::cpu_has(HWY_AVX3);
  EXPECT_EQ(&bf16x3_kernels(), amx ? amx_bf16x3_kernels() : &portable_bf16x3_kernels());
}

}  // namespace
}  // namespace lockstep::cpu

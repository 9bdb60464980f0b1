#pragma once
// Products on a processor's matrix units for bfloat16: of bfloat16, and of floats, as accurate as
// products of floats.
//
// Products of bfloat16: a sum runs over the depth in chunks of 32, padded with zeros,
//
//   sum += even + odd,  even = the chain of fused multiply-adds of a[k] b[k] over k = 0, 2, ... 30
//   of the chunk, from zero; odd over k = 1, 3, ... 31
//
// with every operation rounded to nearest and numbers below 2^-126 treated as zero. This is what
// the instruction TDPBF16PS computes.
//
// A float is the sum of three bfloat16 numbers, each of which has the next eight bits of its
// mantissa: x = x1 + x2 + x3, exactly. (Each part is the remainder rounded to nearest, ties away
// from zero.) Of the nine products of the parts of two floats, six matter; the other three are
// below 2^-23 |a b|:
//
//   a b ~ a3 b1 + a2 b1 + a2 b2 + a1 b2 + a1 b3 + a1 b1
//
// A sum runs over the chunks, and within each one over the six pairs of parts (i, j) in the order
// above, each as a product of bfloat16. On x86-64 processors without it, the same bits are computed
// in software, several times slower than products of floats. (Without fused multiply-adds, products
// below 2^-126 are treated as zero before they are added. Other processors do not flush.)
//
// Differences from products of floats: the order of the sums; parts and products of parts below
// 2^-126, so that floats, and products, below 2^-103 lose bits; factors that are infinite or at
// least 3.396e38, whose sums are NaN; and products that overflow, whose sums may be NaN.

#include <cstdint>
#include <type_traits>

#include "runtime/base/half.h"

namespace lockstep::cpu {

inline constexpr int64_t kTileEdge = 16;    // rows or columns of a tile
inline constexpr int64_t kTileDepth = 32;   // of a chunk
inline constexpr int64_t kPartElems = 512;  // of a tile, for one part
// Parts of a number of type T, float or BFloat16, and elements of a tile of such numbers.
template <typename T>
inline constexpr int64_t kPartsOf = std::is_same_v<T, float> ? 3 : 1;
template <typename T>
inline constexpr int64_t kTileElems = kPartsOf<T>* kPartElems;
inline constexpr int64_t kTileParts = kPartsOf<float>;
inline constexpr int64_t kSplitElems = kTileElems<float>;

// Prefetches rows of memory that are needed later, some cache lines at a time between products, so
// that nothing waits for main memory.
class RowFetcher {
 public:
  RowFetcher() = default;
  // `rows` x `columns` numbers with stride `stride`, spread over `calls` calls of run().
  template <typename T>
  RowFetcher(const T* data, int64_t stride, int64_t rows, int64_t columns, int64_t calls)
      : row_(reinterpret_cast<const char*>(data)),
        stride_(stride * static_cast<int64_t>(sizeof(T))),
        rows_(columns > 0 ? rows : 0),
        bytes_(columns * static_cast<int64_t>(sizeof(T))),
        lines_((rows_ * ((bytes_ + kLine - 1) / kLine) + calls - 1) / calls) {}

  void run() {
    for (int64_t left = lines_; left > 0 && rows_ > 0; --left) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* row_ = nullptr;
  int64_t stride_ = 0, rows_ = 0, bytes_ = 0;
  int64_t lines_ = 0;  // per call
  int64_t at_ = 0;     // offset within the row, in bytes
};

// The steps of a product of numbers of type T, implemented for one kind of processor. Split tiles
// are bfloat16, aligned to 64 bytes. A tile of A, 16 rows x 32 of the depth, is
// [part][row][depth]; a tile of B, 32 of the depth x 16 columns, is
// [part][depth / 2][column][depth % 2]. bfloat16 is not split: it has one part.
template <typename T>
struct TileKernels {
  // Tiles to be split: either tiles of A from 16 rows, one for each 32 elements of the rows, or one
  // tile of B from 16 elements of each of 32 rows.
  struct Split {
    const T* const* rows;  // null stands for zeros
    int64_t offset;        // offset of the first element in each row
    int64_t count;         // elements of a row, above 0; padded with zeros
    uint16_t* to;
    int64_t stride;  // elements between consecutive tiles
  };

  const char* name;

  // Splits the listed tiles of A.
  void (*split_rows)(const Split* tiles, int64_t count);

  // Splits `depth` elements of each of 16 columns (null stands for zeros) into tiles of B, one for
  // each chunk. `stride`: elements between consecutive tiles.
  void (*pack_rows_as_columns)(const T* const* columns,
                               int64_t depth,
                               uint16_t* to,
                               int64_t stride);

  // Splits `columns` <= 16 elements of each of the 32 rows of a chunk (null stands for zeros) into
  // a tile of B, or into a tile of A whose rows are these columns.
  void (*pack_depth)(const T* const* rows, int64_t columns, uint16_t* to);
  void (*pack_depth_as_rows)(const T* const* rows, int64_t columns, uint16_t* to);

  // Products of a column of tiles of A with one or two neighbouring tiles of B.
  struct Tiles {
    int64_t row_tiles, column_tiles;
    int64_t chunks;
    const uint16_t* a;  // [row tile][chunk] tiles of A
    int64_t a_stride;   // elements between consecutive row tiles
    const uint16_t* b;  // [chunk][column tile] tiles of B
    float* c;           // (16 row_tiles, 16 column_tiles)
    int64_t c_stride;
    bool accumulate;                // c += a b, else c = a b
    RowFetcher* fetcher = nullptr;  // run with each chunk of a pair of row tiles
    // Tiles that are split meanwhile, in this order and row by row, while the matrix unit is busy:
    // `next_steps` sixteenths of a tile with each chunk of a pair of row tiles, and the rest at the
    // end. So they may include tiles of A that later row tiles need.
    const Split* next = nullptr;
    int64_t next_count = 0;
    int64_t next_steps = 0;
    bool next_of_b = false;
  };
  void (*multiply)(const Tiles& tiles);

  // Adds four products of tiles of bfloat16, in registers, `times` times: the peak of a matrix
  // unit. Null: there is none.
  void (*multiply_in_registers)(int64_t times) = nullptr;
};

using Bf16x3Kernels = TileKernels<float>;

// The fastest kernels on this processor that simd_level() permits. T: float or BFloat16.
template <typename T>
const TileKernels<T>& tile_kernels();

// Kernels for any processor.
template <typename T>
const TileKernels<T>& portable_tile_kernels();
// Kernels for AMX, if the processor has it and the operating system permits its use; otherwise
// null.
template <typename T>
const TileKernels<T>* amx_tile_kernels();

inline const Bf16x3Kernels& bf16x3_kernels() { return tile_kernels<float>(); }
inline const Bf16x3Kernels& portable_bf16x3_kernels() { return portable_tile_kernels<float>(); }
inline const Bf16x3Kernels* amx_bf16x3_kernels() { return amx_tile_kernels<float>(); }

}  // namespace lockstep::cpu

#pragma once
// Products of floats on a processor's matrix units for bfloat16, as accurate as products of floats.
//
// A float is the sum of three bfloat16 numbers, each of the next eight bits of its mantissa: x = x1
// + x2 + x3, exactly (each part is what is left, rounded to nearest, ties away from zero). Of the
// nine products of the parts of two floats, six matter; the other three are below 2^-23 |a b|:
//
//   a b ~ a3 b1 + a2 b1 + a2 b2 + a1 b2 + a1 b3 + a1 b1
//
// A sum over the depth goes through it in chunks of 32, filled up with zeros, and for each chunk
// through the six pairs of parts (i, j) in the order above:
//
//   sum += even + odd,  even = the chain of fused multiply-adds of ai[k] bj[k] over k = 0, 2, ...
//   30 of the chunk, from zero; odd over k = 1, 3, ... 31
//
// with every operation rounded to nearest and numbers below 2^-126 taken for zero: this is what the
// instruction TDPBF16PS computes. Where an x86-64 processor has none, the same bits are computed
// without it, several times slower than products of floats. (Without fused multiply-adds, products
// below 2^-126 are taken for zero before they are added. Other processors do not flush.)
//
// What differs from products of floats: the order of the sums; parts and products of parts below
// 2^-126, so that floats, and products, below 2^-103 lose bits; factors that are infinite or from
// 3.396e38 on, whose sums are NaN; and products that overflow, whose sums may be.

#include <cstdint>

namespace lockstep::cpu {

inline constexpr int64_t kTileEdge = 16;                         // rows or columns of a tile
inline constexpr int64_t kTileDepth = 32;                        // of a chunk
inline constexpr int64_t kTileParts = 3;                         // of a float
inline constexpr int64_t kPartElems = 512;                       // of a tile, for one part
inline constexpr int64_t kSplitElems = kTileParts * kPartElems;  // of a tile of split floats

// Touches rows of memory that are needed later, some cache lines at a time between products: so
// nothing waits for main memory.
class RowFetcher {
 public:
  RowFetcher() = default;
  // `rows` x `columns` floats, `stride` apart, spread over so many calls of run().
  RowFetcher(const float* data, int64_t stride, int64_t rows, int64_t columns, int64_t calls)
      : row_(reinterpret_cast<const char*>(data)),
        stride_(stride * static_cast<int64_t>(sizeof(float))),
        rows_(columns > 0 ? rows : 0),
        bytes_(columns * static_cast<int64_t>(sizeof(float))),
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
  int64_t lines_ = 0;  // in a call
  int64_t at_ = 0;     // of the row's bytes
};

// One of a kind of processor's ways to do the steps of a product. Split tiles are bfloat16, aligned
// to 64 bytes. A tile of A, 16 rows x 32 of the depth, is [part][row][depth]; a tile of B, 32 of
// the depth x 16 columns, is [part][depth / 2][column][depth % 2].
struct Bf16x3Kernels {
  // Tiles to be split: of A from 16 rows, one for each 32 elements of them, or one of B from 16
  // elements of each of 32 rows.
  struct Split {
    const float* const* rows;  // those that are null are zeros
    int64_t offset;            // elements before the first one in each row
    int64_t count;             // elements of a row, above 0; zeros behind them
    uint16_t* to;
    int64_t stride;  // elements from one tile to the next
  };

  const char* name;

  // Splits tiles of A as they are listed.
  void (*split_rows)(const Split* tiles, int64_t count);

  // Splits `depth` elements of each of 16 columns, of which those that are null are zeros, into
  // tiles of B, one for each chunk. `stride`: elements from one tile to the next.
  void (*pack_rows_as_columns)(const float* const* columns,
                               int64_t depth,
                               uint16_t* to,
                               int64_t stride);

  // Splits `columns` <= 16 elements of each of the 32 rows of a chunk, of which those that are null
  // are zeros, into a tile of B, or of A whose rows these columns are.
  void (*pack_depth)(const float* const* rows, int64_t columns, uint16_t* to);
  void (*pack_depth_as_rows)(const float* const* rows, int64_t columns, uint16_t* to);

  // Products of tiles of A, one below the other, with one or two tiles of B beside each other.
  struct Tiles {
    int64_t row_tiles, column_tiles;
    int64_t chunks;
    const uint16_t* a;  // [row tile][chunk] tiles of A
    int64_t a_stride;   // elements from one row tile to the next
    const uint16_t* b;  // [chunk][column tile] tiles of B
    float* c;           // (16 row_tiles, 16 column_tiles)
    int64_t c_stride;
    bool accumulate;                // c += a b, else c = a b
    RowFetcher* fetcher = nullptr;  // run with each chunk of a pair of row tiles
    // Tiles that are split meanwhile, in this order and row by row, while the matrix unit is busy:
    // `next_steps` sixteenths of a tile with each chunk of a pair of row tiles, and at the end what
    // is left. So tiles of A may be among them which later row tiles need.
    const Split* next = nullptr;
    int64_t next_count = 0;
    int64_t next_steps = 0;
    bool next_of_b = false;
  };
  void (*multiply)(const Tiles& tiles);
};

// The fastest on this processor.
const Bf16x3Kernels& bf16x3_kernels();

// On any processor.
const Bf16x3Kernels& portable_bf16x3_kernels();
// With AMX, where the processor has it and the kernel lets this process use it; else null.
const Bf16x3Kernels* amx_bf16x3_kernels();

}  // namespace lockstep::cpu

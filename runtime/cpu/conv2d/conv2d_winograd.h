#pragma once
// Winograd's convolutions F(2x2, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2015): a 3x3 kernel with stride 1 over tiles of 2x2 results. A tile d of 4x4 pixels
// and the kernel g are transformed, multiplied entry by entry with sums over the channels, and
// transformed back:
//
//   y = A^T [ sum over channels of (G g G^T) (B^T d B) ] A
//
// which takes 16 multiplications a channel for four results instead of 36. The sums over the
// channels are sixteen matrix products, tiles x channels by channels x outputs: one for each entry.

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

constexpr int64_t kEntries = 16;      // of a transformed tile
constexpr int64_t kTileBlock = 48;    // tiles transformed and multiplied at a time
constexpr int64_t kWeightChunk = 36;  // channels whose weights are transformed at a time
// Tiles at a time for the gradient of the weights: as many as a second-level cache has room for
// their transformed gradients.
constexpr int64_t weight_tile_block(int64_t outputs) {
  return std::clamp<int64_t>(12288 / outputs / kRowUnit * kRowUnit, 48, 96);
}
// Floats between the entries of a tile, or of weights, beyond their size, which is often a multiple
// of a page: all entries would compete for the same cache lines.
constexpr int64_t kEntryGap = 16;

// Whether a convolution is computed this way: with fewer channels the transforms cost as much as
// they save. Depends on nothing that leaves the results' bits alone, nor on the batch: an image's
// results do not depend on how many others there are.
inline bool uses_winograd(const Conv2dShape& s) {
  return s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 && s.stride_w == 1 &&
         s.dilation_h == 1 && s.dilation_w == 1 && s.groups == 1 && s.channels >= 32 &&
         s.outputs >= 32;
}

// The tiles of a Gather with such a kernel.
struct WinogradTiles {
  explicit WinogradTiles(const Conv2dShape& s)
      : down(ceil_div(s.out_height(), 2)),
        across(ceil_div(s.out_width(), 2)),
        count(s.batch * down * across) {}
  explicit WinogradTiles(const Gather& g)
      : down(ceil_div(g.h.pixels, 2)),
        across(ceil_div(g.w.pixels, 2)),
        count(g.images * down * across) {}
  int64_t down, across;  // of an image
  int64_t count;
};

// Panels [entry][row][column] and a gap after each entry, for any width of the panels.
constexpr int64_t panels_floats(int64_t rows, int64_t columns) {
  return kEntries * (rows + kEntryGap / 2) * round_up(columns, kMaxPanel);
}

// How the work is shared out, and where things lie in the workspace; sizes in floats. Strides are
// such that the rows of a product do not compete for the same cache lines either.
struct WinogradScratch {
  WinogradScratch(const Gather& g, int threads)
      : grid(arrange_workers(threads, WinogradTiles(g).count, g.columns, kEntries * g.depth)),
        few_tiles(grid.most_rows(WinogradTiles(g).count) <= kTileBlock),
        pixel_stride(round_up(g.depth, 16) + 16),
        pixels_entry(kTileBlock * pixel_stride + kEntryGap),
        product_entry(kTileBlock * kMaxPanel + kEntryGap),
        shared_weights(few_tiles ? 0 : panels_floats(g.depth, g.columns)),
        packed(round_up(9 * kWeightChunk * kMaxPanel + 16, 16)),
        weights(few_tiles ? panels_floats(kFewTilesDepth, kMaxPanel) : 0),
        worker(kEntries * (pixels_entry + product_entry) + packed + weights) {
    if (!few_tiles) grid = {grid.workers(), 1};
  }

  int64_t bytes() const {
    return (shared_weights + grid.workers() * worker) * static_cast<int64_t>(sizeof(float));
  }

  // Channels of a panel whose weights are transformed before they are multiplied, where each worker
  // has but one block of tiles.
  static constexpr int64_t kFewTilesDepth = 4 * kWeightChunk;

  WorkerGrid grid;  // over tiles x columns
  bool few_tiles;
  int64_t pixel_stride;    // between the transformed pixels of two tiles
  int64_t pixels_entry;    // between the entries of transformed pixels
  int64_t product_entry;   // between the entries of a product, (tiles, a panel's columns)
  int64_t shared_weights;  // transformed: [panel][entry][channel][column]
  int64_t packed;          // some weights as they are packed before: [tap][channel][column]
  int64_t weights;         // a worker's own transformed weights: [entry][channel][column]
  int64_t worker;
};

// The same for the gradient of the weights,
//
//   d_g = G^T [ sum over tiles of (A d_y A^T) (B^T d B) ] G
//
// whose sums are again sixteen products, outputs x tiles by tiles x channels.
struct WinogradWeightScratch {
  WinogradWeightScratch(const Conv2dShape& s, int threads)
      : grid(arrange_workers(threads, s.outputs, s.channels, kEntries * WinogradTiles(s).count)),
        gradient_stride(round_up(grid.most_rows(s.outputs), 16) + 16),
        block(weight_tile_block(grid.most_rows(s.outputs))),
        gradients_entry(block * gradient_stride + kEntryGap),
        pixels_entry(block * kMaxPanel + kEntryGap),
        few_tiles(WinogradTiles(s).count <= block),
        products(few_tiles ? 0 : panels_floats(s.outputs, s.channels)),
        few_products(few_tiles ? panels_floats(kFewTilesOutputs, kMaxPanel) : 0),
        worker(kEntries * (gradients_entry + pixels_entry) + few_products) {}

  int64_t bytes() const {
    return (products + grid.workers() * worker) * static_cast<int64_t>(sizeof(float));
  }

  static constexpr int64_t kFewTilesOutputs = 96;  // multiplied and transformed at a time

  WorkerGrid grid;          // over outputs x channels
  int64_t gradient_stride;  // between the transformed gradients of two tiles
  int64_t block;            // tiles transformed and multiplied at a time
  int64_t gradients_entry;  // between the entries of transformed gradients
  int64_t pixels_entry;     // between the entries of a panel of transformed pixels
  bool few_tiles;           // one block, whose products are complete at once
  int64_t products;         // [panel of channels][entry][output][channel]
  int64_t few_products;     // or a worker's, of some outputs
  int64_t worker;
};

// d_weight of a shape that uses_winograd().
void winograd_backward_weight(const Conv2dBackward<float>& op);

// Computes a Gather whose kernel is 3x3, with stride 1.
void winograd_gather(const Gather& g, void* workspace);

}  // namespace lockstep::cpu

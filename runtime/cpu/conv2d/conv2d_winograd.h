#pragma once
// Winograd's convolutions F(2x2, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2015), for 3x3 kernels with stride 1.
//
// The result is cut into tiles of 2x2. A tile y depends on a tile d of 4x4 pixels and on the kernel
// g (3x3):
//
//   y = A^T [ sum over channels of (G g G^T) . (B^T d B) ] A      (. multiplies entry by entry)
//
//         1  0 -1  0          1    0    0
//   B^T = 0  1  1  0      G = 1/2  1/2  1/2      A^T = 1  1  1  0
//         0 -1  1  0          1/2 -1/2  1/2            0  1 -1 -1
//         0  1  0 -1          0    0    1
//
// Transformed tiles have 16 entries, so four results take 16 multiplications per channel, not 36.
// For each entry e, the sum over the channels is a matrix product, so there are sixteen of them:
//
//   product[e] (tiles, outputs) = pixels[e] (tiles, channels) weights[e] (channels, outputs)
//
// The transforms use only additions and factors of 1/2, but their results are rounded, so the bits
// differ from those of a direct convolution. The invariant is that each entry's sum over the
// channels is one chain in increasing order (gemm.h), and that every transform has one fixed order
// of operations. Then the bits depend neither on the blocks of tiles, nor on the threads, nor on
// whether weights are transformed once for all workers or by each worker as needed.
//
// Tensors of bfloat16 are read, and results rounded, by the transforms; entries are floats.
//
// Blocks of kTileBlock tiles are transformed and multiplied at a time, panel by panel of the
// outputs, so that a panel's sixteen products are transformed back while they are in the cache.

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

constexpr int64_t kEntries = 16;      // of a transformed tile
constexpr int64_t kTileBlock = 48;    // tiles transformed and multiplied at a time
constexpr int64_t kWeightChunk = 36;  // channels whose weights are transformed at a time
// Tiles at a time for the gradient of the weights: as many as a second-level cache can hold
// transformed gradients for.
constexpr int64_t weight_tile_block(int64_t outputs) {
  return std::clamp<int64_t>(12288 / outputs / kRowUnit * kRowUnit, 48, 96);
}
// Extra floats between the entries of a tile, or of weights. Without them, the distance is often a
// multiple of the page size, and all entries would compete for the same cache lines.
constexpr int64_t kEntryGap = 16;

// Whether a convolution is computed this way. With fewer channels, the transforms cost as much as
// they save. Depends neither on the number of threads nor on the batch: an image's results do not
// depend on how many others there are.
inline bool uses_winograd(const graph::Conv2dShape& s) {
  return s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 && s.stride_w == 1 &&
         s.dilation_h == 1 && s.dilation_w == 1 && s.groups == 1 && s.channels >= 32 &&
         s.outputs >= 32;
}

// The tiles of a Gather with such a kernel.
struct WinogradTiles {
  explicit WinogradTiles(const graph::Conv2dShape& s)
      : down(ceil_div(s.out_height(), 2)),
        across(ceil_div(s.out_width(), 2)),
        count(s.batch * down * across) {}
  template <typename T>
  explicit WinogradTiles(const Gather<T>& g)
      : down(ceil_div(g.h.pixels, 2)),
        across(ceil_div(g.w.pixels, 2)),
        count(g.images * down * across) {}
  int64_t down, across;  // per image
  int64_t count;
};

// Number of floats in panels [entry][row][column] with a gap after each entry, for any width.
constexpr int64_t panels_floats(int64_t rows, int64_t columns) {
  return kEntries * (rows + kEntryGap / 2) * round_up(columns, kMaxPanel);
}

// The division of the work, and the layout of the workspace; sizes in floats. The strides are
// chosen so that the rows of a product do not compete for the same cache lines either.
struct WinogradScratch {
  template <typename T>
  WinogradScratch(const Gather<T>& g, int threads)
      : grid(arrange_workers(threads, WinogradTiles(g).count, g.columns, kEntries * g.depth)),
        single_block(grid.max_rows(WinogradTiles(g).count) <= kTileBlock),
        pixel_stride(round_up(g.depth, 16) + 16),
        pixels_entry(kTileBlock * pixel_stride + kEntryGap),
        product_entry(kTileBlock * kMaxPanel + kEntryGap),
        shared_weights(single_block ? 0 : panels_floats(g.depth, g.columns)),
        packed(round_up(9 * kWeightChunk * kMaxPanel + 16, 16)),
        weights(single_block ? panels_floats(kSingleBlockDepth, kMaxPanel) : 0),
        worker(kEntries * (pixels_entry + product_entry) + packed + weights) {
    if (!single_block) grid = {grid.workers(), 1};
  }

  int64_t bytes() const {
    return (shared_weights + grid.workers() * worker) * static_cast<int64_t>(sizeof(float));
  }

  // Channels of a panel whose weights are transformed before they are multiplied, if each worker
  // has only one block of tiles.
  static constexpr int64_t kSingleBlockDepth = 4 * kWeightChunk;

  WorkerGrid grid;         // over tiles x columns
  bool single_block;       // each worker has at most one block of tiles
  int64_t pixel_stride;    // between the transformed pixels of two tiles
  int64_t pixels_entry;    // between the entries of transformed pixels
  int64_t product_entry;   // between the entries of a product, (tiles, a panel's columns)
  int64_t shared_weights;  // transformed: [panel][entry][channel][column]
  int64_t packed;          // a few unpacked weights: [tap][channel][column]
  int64_t weights;         // a worker's private transformed weights: [entry][channel][column]
  int64_t worker;
};

// The same for the gradient of the weights,
//
//   d_g = G^T [ sum over tiles of (A d_y A^T) (B^T d B) ] G
//
// whose sums are again sixteen products, outputs x tiles by tiles x channels.
struct WinogradWeightScratch {
  WinogradWeightScratch(const graph::Conv2dShape& s, int threads)
      : grid(arrange_workers(threads, s.outputs, s.channels, kEntries * WinogradTiles(s).count)),
        gradient_stride(round_up(grid.max_rows(s.outputs), 16) + 16),
        block(weight_tile_block(grid.max_rows(s.outputs))),
        gradients_entry(block * gradient_stride + kEntryGap),
        pixels_entry(block * kMaxPanel + kEntryGap),
        single_block(WinogradTiles(s).count <= block),
        products(single_block ? 0 : panels_floats(s.outputs, s.channels)),
        block_products(single_block ? panels_floats(kSingleBlockOutputs, kMaxPanel) : 0),
        worker(kEntries * (gradients_entry + pixels_entry) + block_products) {}

  int64_t bytes() const {
    return (products + grid.workers() * worker) * static_cast<int64_t>(sizeof(float));
  }

  static constexpr int64_t kSingleBlockOutputs = 96;  // multiplied and transformed at a time

  WorkerGrid grid;          // over outputs x channels
  int64_t gradient_stride;  // between the transformed gradients of two tiles
  int64_t block;            // tiles transformed and multiplied at a time
  int64_t gradients_entry;  // between the entries of transformed gradients
  int64_t pixels_entry;     // between the entries of a panel of transformed pixels
  bool single_block;        // one block of tiles, whose products are complete at once
  int64_t products;         // [panel of channels][entry][output][channel]
  int64_t block_products;   // or one worker's products, of some outputs
  int64_t worker;
};

// Computes d_weight of a shape for which uses_winograd() is true.
template <typename T>
void winograd_backward_weight(const graph::Conv2dBackward<T>& op);

// Computes a Gather whose kernel is 3x3, with stride 1.
template <typename T>
void winograd_gather(const Gather<T>& g, void* workspace);

}  // namespace lockstep::cpu

#include "runtime/cpu/conv2d/conv2d_winograd.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/stored.h"

// The weights are transformed once. Then each worker takes a block of tiles and transforms its
// pixels. Panel by panel of the result's channels, it multiplies them by the weights of every entry
// and transforms the sums back while they are in the cache. If each worker has only one block of
// tiles, it transforms the weights itself when they are needed: shared ones would make a round trip
// through main memory.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d_winograd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_pack-inl.h"
#include "runtime/cpu/conv2d/conv2d_winograd-inl.h"
#include "runtime/cpu/matmul/epilogue-inl.h"
#include "runtime/cpu/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Transforms the weights of some channels, at most kWeightChunk, and of the panel that begins at
// `column`: to[entry][channel][column].
template <typename T>
HWY_NOINLINE void transform_some_weights(const Gather<T>& g,
                                         Range depth,
                                         int64_t column,
                                         float* packed,
                                         float* to,
                                         size_t entry_stride) {
  const F32 d;
  const int64_t columns = std::min<int64_t>(g.columns - column, kPanel);
  const size_t width = round_up(columns, kVecLanes), tap_floats = depth.size() * width;
  pack_weights(g, Range{0, 9}, depth, column, columns, packed);
  // Tap t of the Gather may read pixel 2 - t of the tile.
  const bool flip_h = g.h.source_tap_step < 0, flip_w = g.w.source_tap_step < 0;
  for (size_t k = 0; k < tap_floats; k += kVecLanes) {
    Vec taps[9], entries[kEntries];
    HWY_UNROLL(9)
    for (size_t t = 0; t < 9; ++t) {
      const size_t i = flip_h ? 2 - t / 3 : t / 3, j = flip_w ? 2 - t % 3 : t % 3;
      taps[t] = hn::LoadU(d, packed + (i * 3 + j) * tap_floats + k);
    }
    transform_weight_tile(taps, entries);
    HWY_UNROLL(16)
    for (size_t e = 0; e < kEntries; ++e) hn::StoreU(entries[e], d, to + e * entry_stride + k);
  }
}

// Offset of a tile's first result.
template <typename T>
HWY_INLINE int64_t result_offset(const Gather<T>& g, const TilePosition& position) {
  return position.image * g.c_strides.image + position.i * g.c_strides.row +
         position.j * g.c_strides.pixel;
}

// Prefetches the residual of some tiles. Its rows are far apart, so the hardware prefetcher does
// not predict them. (Inline, because the compiler removes a call that does nothing else.)
template <typename T>
HWY_INLINE void prefetch_residual(const Gather<T>& g,
                                  Range range,
                                  int64_t column,
                                  int64_t columns) {
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
  const WinogradTiles tiles(g);
  for (int64_t index = range.begin; index < range.end; ++index) {
    const TilePosition position(tiles, index);
    const T* const first = g.epilogue.residual + result_offset(g, position) + column;
    for (int64_t i = 0; i < std::min<int64_t>(2, g.h.pixels - position.i); ++i) {
      for (int64_t j = 0; j < std::min<int64_t>(2, g.w.pixels - position.j); ++j) {
        const T* const pixel = first + i * g.c_strides.row + j * g.c_strides.pixel;
        for (int64_t k = 0; k < columns; k += kLine) __builtin_prefetch(pixel + k, 0, 2);
      }
    }
  }
}

// Transforms the sums back, applies the epilogue and stores the results.
template <Activation kKind, typename T>
HWY_INLINE void finish_tiles(const Gather<T>& g,
                             const WinogradScratch& scratch,
                             Range range,
                             int64_t column,
                             int64_t columns,
                             const float* sums) {
  const WinogradTiles tiles(g);
  const size_t width = round_up(columns, kVecLanes);
  for (int64_t index = range.begin; index < range.end; ++index, sums += width) {
    const TilePosition position(tiles, index);
    const int64_t first = result_offset(g, position) + column;
    const bool below = position.i + 1 < g.h.pixels, right = position.j + 1 < g.w.pixels;
    for_each_vector(columns, [&](size_t n, auto access) HWY_ATTR {
      Vec entries[kEntries], results[4];
      HWY_UNROLL(16)
      for (size_t e = 0; e < kEntries; ++e) {
        entries[e] = hn::LoadU(F32(), sums + e * scratch.product_entry + n);
      }
      transform_sum_tile(entries, results);
      const int64_t at = first + static_cast<int64_t>(n);
      // Results beyond the image use a residual within it, and are not stored.
      const int64_t all[4] = {at,
                              right ? at + g.c_strides.pixel : at,
                              below ? at + g.c_strides.row : at,
                              below && right ? at + g.c_strides.row + g.c_strides.pixel : at};
      finish_sums(g.epilogue, access, results, column + n, all);
      access.store(activate<kKind>(results[0]), g.c + all[0]);
      if (right) access.store(activate<kKind>(results[1]), g.c + all[1]);
      if (below) access.store(activate<kKind>(results[2]), g.c + all[2]);
      if (below && right) access.store(activate<kKind>(results[3]), g.c + all[3]);
    });
  }
}

template <typename T>
HWY_NOINLINE void finish_tiles_with(const Gather<T>& g,
                                    const WinogradScratch& scratch,
                                    Range range,
                                    int64_t column,
                                    int64_t columns,
                                    const float* sums) {
  with_activation(g.epilogue.activation, [&](auto kind) HWY_ATTR {
    finish_tiles<decltype(kind)::value>(g, scratch, range, column, columns, sums);
  });
}

// product(tiles, width) (+)= pixels(tiles, depth) weights(depth, width).
HWY_INLINE void multiply_entry(const float* pixels,
                               size_t pixel_stride,
                               size_t count,
                               const float* weights,
                               size_t depth,
                               size_t width,
                               bool accumulate,
                               float* product,
                               Prefetcher* next_weights) {
  Prefetcher none;
  Tiles tiles{};
  tiles.depth = depth;
  tiles.a_stride = pixel_stride;
  tiles.b = weights;
  tiles.b_stride = width;
  tiles.c_stride = width;
  tiles.accumulate = accumulate;
  tiles.next_panel = next_weights;
  tiles.next_other = &none;
  for (size_t i = 0; i < count;) {
    const size_t rows = std::min(count - i, kTileRows);
    tiles.tiles = (count - i) / rows;
    tiles.a = pixels + i * pixel_stride;
    tiles.a_step = rows * pixel_stride;
    tiles.c = product + i * width;
    tile_kernel(false, width / kVecLanes, rows)(tiles);
    i += tiles.tiles * rows;
  }
}

// Offset of the transformed weights of a panel.
template <typename T>
HWY_INLINE int64_t panel_begin(const Gather<T>& g, int64_t column) {
  return column / kPanel * kEntries * (g.depth * kPanel + kEntryGap);
}

// A worker's scratch memory.
struct WorkerScratch {
  WorkerScratch(const WinogradScratch& sizes, float* memory)
      : pixels(memory),
        product(pixels + kEntries * sizes.pixels_entry),
        packed(product + kEntries * sizes.product_entry),
        weights(packed + sizes.packed) {}
  float *pixels, *product, *packed, *weights;
};

// Prefetches the weights of the channels from k on, or of the next panel if none are left, in
// `steps` steps. Reads the unpacked weights: rows of all taps for each output or channel.
template <typename T>
HWY_INLINE Prefetcher prefetch_weights(
    const Gather<T>& g, int64_t k, int64_t depth, int64_t column, int64_t end, size_t steps) {
  if (k >= g.depth) k = 0, column += kPanel;
  if (column >= end) return {};
  const int64_t columns = std::min<int64_t>(end - column, kPanel);
  depth = std::min(g.depth - k, depth);
  const GemmOperand taps{g.weights, g.tap_stride};
  return g.transposed ? Prefetcher(taps.at(column * 9, k), columns * 9, depth, steps)
                      : Prefetcher(taps.at(k * 9, column), depth * 9, columns, steps);
}

// Computes a block of tiles x some columns of the result. `weights`: all weights, transformed; or
// null.
template <typename T>
HWY_NOINLINE void multiply_tile_block(const Gather<T>& g,
                                      const WinogradScratch& sizes,
                                      Range range,
                                      Range columns,
                                      const float* weights,
                                      WorkerScratch scratch) {
  transform_block_pixels(
      g, range, Range{0, g.depth}, scratch.pixels, sizes.pixels_entry, sizes.pixel_stride);
  const int64_t step = weights == nullptr ? WinogradScratch::kSingleBlockDepth : g.depth;
  for (int64_t n = columns.begin; n < columns.end; n += kPanel) {
    const int64_t some_columns = std::min<int64_t>(columns.end - n, kPanel);
    const int64_t width = round_up(some_columns, kVecLanes);
    for (int64_t k = 0; k < g.depth; k += step) {
      const int64_t depth = std::min(g.depth - k, step);
      for (int64_t i = 0; i < depth && weights == nullptr; i += kWeightChunk) {
        transform_some_weights(g,
                               Range{k + i, k + std::min(depth, i + kWeightChunk)},
                               n,
                               scratch.packed,
                               scratch.weights + i * width,
                               depth * width + kEntryGap);
      }
      const float* const ready = weights == nullptr ? scratch.weights : weights + panel_begin(g, n);
      Prefetcher next_weights;
      if (weights == nullptr) {
        const size_t steps = kEntries * ceil_div(range.size(), kTileRows) * fetches_of(depth);
        next_weights = prefetch_weights(g, k + step, step, n, columns.end, steps);
      }
      const bool last = k + depth == g.depth;
      for (int64_t e = 0; e < kEntries; ++e) {
        if (last && g.epilogue.residual != nullptr) {
          const Range some = share(range.size(), 1, e, kEntries);
          prefetch_residual(
              g, Range{range.begin + some.begin, range.begin + some.end}, n, some_columns);
        }
        multiply_entry(scratch.pixels + e * sizes.pixels_entry + k,
                       sizes.pixel_stride,
                       range.size(),
                       ready + e * (depth * width + kEntryGap),
                       depth,
                       width,
                       k > 0,
                       scratch.product + e * sizes.product_entry,
                       &next_weights);
      }
    }
    finish_tiles_with(g, sizes, range, n, some_columns, scratch.product);
  }
}

// Transforms one worker's share of the weights.
template <typename T>
HWY_NOINLINE void transform_shared_weights(
    const Gather<T>& g, int64_t worker, int64_t workers, float* packed, float* weights) {
  const int64_t chunks = ceil_div(g.depth, kWeightChunk);
  const Range mine = share(ceil_div(g.columns, kPanel) * chunks, 1, worker, workers);
  for (int64_t index = mine.begin; index < mine.end; ++index) {
    const int64_t k = index % chunks * kWeightChunk, n = index / chunks * kPanel;
    const int64_t width = round_up(std::min<int64_t>(g.columns - n, kPanel), kVecLanes);
    transform_some_weights(g,
                           Range{k, std::min(g.depth, k + kWeightChunk)},
                           n,
                           packed,
                           weights + panel_begin(g, n) + k * width,
                           g.depth * width + kEntryGap);
  }
}

template <typename T>
void winograd_all(const Gather<T>& g, float* workspace) {
  const WinogradScratch sizes(g, compute_threads());
  const WorkerGrid grid = sizes.grid;
  const auto scratch = [&](int64_t worker) {
    return WorkerScratch(sizes, workspace + sizes.shared_weights + worker * sizes.worker);
  };
  if (!sizes.single_block) {
    for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
      transform_shared_weights(g, worker, grid.workers(), scratch(worker).packed, workspace);
    });
  }
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    const Range tiles = share(WinogradTiles(g).count, kRowUnit, worker / grid.columns, grid.rows);
    for (int64_t index = tiles.begin; index < tiles.end; index += kTileBlock) {
      multiply_tile_block(g,
                          sizes,
                          Range{index, std::min(tiles.end, index + kTileBlock)},
                          share(g.columns, kMaxPanel, worker % grid.columns, grid.columns),
                          sizes.single_block ? nullptr : workspace,
                          scratch(worker));
    }
  });
}

void winograd_kernel(AnyStored<Gather> stored, float* workspace) {
  stored.with([&](const auto& g) HWY_ATTR { winograd_all(g, workspace); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(winograd_kernel);

template <typename T>
void winograd_gather(const Gather<T>& g, void* workspace) {
  HWY_DYNAMIC_DISPATCH(winograd_kernel)(g, static_cast<float*>(workspace));
}
template void winograd_gather(const Gather<float>&, void*);
template void winograd_gather(const Gather<BFloat16>&, void*);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

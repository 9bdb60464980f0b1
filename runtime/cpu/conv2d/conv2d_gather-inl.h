// Computes a Gather (conv2d_gather.h). Compiled once per instruction set: include it only from a
// .cc file that Highway's foreach_target.h includes repeatedly.
//
// An implicit matrix product: the rows are pixels, the columns are channels of the result, the
// depth is taps x channels of the source. The source is not copied: it is read through a list of
// pointers to where each pixel's taps begin (for padding, a row of zeros). The weights are packed
// panel by panel, and each panel is multiplied with a block of pixels.
//
// If the source is bfloat16, what a block of pixels reads is copied in floats, and the pointers are
// to the copies. If the result is bfloat16, the sums of a block are kept in floats until they are
// complete.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_CONV2D_GATHER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_CONV2D_GATHER_INL_H
#undef LOCKSTEP_RUNTIME_CPU_CONV2D_GATHER_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_CONV2D_GATHER_INL_H
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_pack-inl.h"
#include "runtime/cpu/conv2d/conv2d_tile-inl.h"
#include "runtime/cpu/matmul/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Coordinates and pointers of the pixels of a block, shared by all their taps. The arrays are
// padded to full tiles.
template <typename T>
struct GatherPixels {
  GatherPixels(char* memory, size_t capacity)
      : source(reinterpret_cast<int64_t*>(memory)),
        result(reinterpret_cast<T**>(source + capacity)),
        h(reinterpret_cast<int64_t*>(result + capacity)),
        w(h + capacity),
        sums(reinterpret_cast<float**>(w + capacity)) {}

  int64_t* source;  // byte offset of tap 0 in a; it may lie in the padding
  T** result;
  int64_t *h, *w;  // coordinates of tap 0
  float** sums;    // only if they are rounded to the result
};

// Lists the pixels of `range`, and repeats the last one to fill a tile.
template <typename T, typename Source>
HWY_INLINE void list_pixels(const GatherFrom<T, Source>& g,
                            Range range,
                            const GatherPixels<T>& to) {
  int64_t i = range.begin / g.w.pixels % g.h.pixels, j = range.begin % g.w.pixels;
  int64_t image = range.begin / g.w.pixels / g.h.pixels;
  for (int64_t n = 0; n < round_up(range.size(), kTileRows); ++n) {
    const int64_t h = g.h.source_first + i * g.h.source_step;
    const int64_t w = g.w.source_first + j * g.w.source_step;
    to.source[n] = (image * g.a_strides.image + h * g.a_strides.row + w * g.a_strides.pixel) *
                   static_cast<int64_t>(sizeof(Source));
    to.result[n] = g.c + image * g.c_strides.image +
                   (g.h.result_first + i * g.h.result_step) * g.c_strides.row +
                   (g.w.result_first + j * g.w.result_step) * g.c_strides.pixel;
    to.h[n] = h;
    to.w[n] = w;
    if (n + 1 >= range.size()) continue;
    if (++j == g.w.pixels) {
      j = 0;
      if (++i == g.h.pixels) i = 0, ++image;
    }
  }
}

// Lists where the taps of each pixel begin, as addresses: [tile][tap][kTileRows].
template <typename T, typename Source>
HWY_INLINE void list_sources(const GatherFrom<T, Source>& g,
                             const GatherPixels<T>& pixels,
                             size_t tiles,
                             Range taps,
                             int64_t depth_begin,
                             const float** to) {
  constexpr size_t kLanes = kTileRows % 4 == 0 ? 4 : 2;  // a part of a tile
  const hn::CappedTag<int64_t, kLanes> d;
  const auto before = hn::Set(d, int64_t{-1});
  const auto height = hn::Set(d, g.h.source_extent), width = hn::Set(d, g.w.source_extent);
  const auto padding = hn::Set(d, static_cast<int64_t>(reinterpret_cast<intptr_t>(kPadding)));
  for (int64_t tap = taps.begin; tap < taps.end; ++tap) {
    const int64_t tap_h = tap / g.w.taps * g.h.source_tap_step;
    const int64_t tap_w = tap % g.w.taps * g.w.source_tap_step;
    const int64_t offset = tap_h * g.a_strides.row + tap_w * g.a_strides.pixel + depth_begin;
    const auto first = hn::Set(d,
                               static_cast<int64_t>(reinterpret_cast<intptr_t>(g.a)) +
                                   offset * static_cast<int64_t>(sizeof(Source)));
    const auto step_h = hn::Set(d, tap_h), step_w = hn::Set(d, tap_w);
    const float** out = to + (tap - taps.begin) * kTileRows;
    for (size_t n = 0; n < tiles * kTileRows; n += kTileRows, out += taps.size() * kTileRows) {
      for (size_t i = 0; i < kTileRows; i += hn::Lanes(d)) {
        const auto h = hn::Add(hn::LoadU(d, pixels.h + n + i), step_h);
        const auto w = hn::Add(hn::LoadU(d, pixels.w + n + i), step_w);
        const auto inside = hn::And(hn::And(hn::Gt(h, before), hn::Lt(h, height)),
                                    hn::And(hn::Gt(w, before), hn::Lt(w, width)));
        const auto source = hn::Add(first, hn::LoadU(d, pixels.source + n + i));
        hn::StoreU(hn::IfThenElse(inside, source, padding), d, reinterpret_cast<int64_t*>(out + i));
      }
    }
  }
}

// Copies what `count` pointers of list_sources() point to, `depth` numbers each, and lists the
// copies.
template <typename Source>
HWY_INLINE void widen_sources(const float** sources, size_t count, size_t depth, float* to) {
  for (size_t i = 0; i < count; ++i, to += depth) {
    copy_as_floats(reinterpret_cast<const Source*>(sources[i]), depth, to);
    sources[i] = to;
  }
}

// Applies the epilogue to sums that are in memory, if no tile has done so: those of column
// `column` are at sums[pixel] + sum_column.
template <Activation kKind, typename T, typename Source>
HWY_INLINE void finish_pixels(const GatherFrom<T, Source>& g,
                              float* const* sums,
                              size_t sum_column,
                              T* const* result,
                              size_t pixels,
                              size_t column,
                              size_t columns) {
  for (size_t i = 0; i < pixels; ++i) {
    const float* const from = sums[i] + sum_column;
    T* const y = result[i] + column;
    const size_t at = y - g.c;
    for_each_vector(columns, [&](size_t j, auto access) HWY_ATTR {
      const Vec sum = access.load(from + j);
      access.store(finished<kKind>(g.epilogue, access, sum, column + j, at + j), y + j);
    });
  }
}

template <typename T, typename Source>
HWY_NOINLINE void finish_pixels_with(const GatherFrom<T, Source>& g,
                                     float* const* sums,
                                     size_t sum_column,
                                     T* const* result,
                                     size_t pixels,
                                     size_t column,
                                     size_t columns) {
  if (std::is_same_v<T, float> && g.epilogue.empty()) return;
  with_activation(g.epilogue.activation, [&](auto kind) HWY_ATTR {
    finish_pixels<decltype(kind)::value>(g, sums, sum_column, result, pixels, column, columns);
  });
}

// Runs one tile whose last columns do not exist in c: computes in a buffer and copies the columns
// that exist.
inline HWY_NOINLINE void gather_edge_tile(GatherKernel kernel,
                                          GatherTiles tile,
                                          size_t rows,
                                          size_t columns) {
  alignas(64) float buffer[kTileRows * kPanel] = {};
  float* in_buffer[kTileRows];
  float* const* const c = tile.c;
  const size_t column = tile.column;
  for (size_t i = 0; i < kTileRows; ++i) in_buffer[i] = buffer + i * kPanel;
  for (size_t i = 0; i < rows && tile.accumulate; ++i) {
    std::memcpy(in_buffer[i], c[i] + column, columns * sizeof(float));
  }
  tile.c = in_buffer;
  tile.column = 0;
  kernel(tile);
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(c[i] + column, in_buffer[i], columns * sizeof(float));
  }
}

// Multiplies a block of pixels by one packed panel. padded: sums may be written up to full vectors.
HWY_INLINE void gather_panel(GatherTiles tiles, size_t pixels, size_t columns, bool padded) {
  const size_t vectors = ceil_div(columns, kVecLanes);
  const bool full = padded || columns == vectors * kVecLanes;
  const size_t a_step = tiles.taps * kTileRows;
  for (size_t i = 0; i < pixels;) {
    const size_t rows = std::min(pixels - i, kTileRows);
    tiles.tiles = full ? (pixels - i) / rows : 1;
    const GatherKernel kernel = gather_kernel(vectors, rows);
    if (full) {
      kernel(tiles);
    } else {
      gather_edge_tile(kernel, tiles, rows, columns);
    }
    i += tiles.tiles * rows;
    tiles.a += tiles.tiles * a_step;
    tiles.c += tiles.tiles * rows;
  }
}

// The epilogue, if the tiles of a panel with `columns` columns apply it themselves; otherwise null.
HWY_INLINE const Epilogue<float>* epilogue_of_tiles(const Epilogue<float>& epilogue,
                                                    size_t columns) {
  const bool simple =
      epilogue.activation == Activation::kNone || epilogue.activation == Activation::kRelu;
  return !epilogue.empty() && columns % kVecLanes == 0 && simple ? &epilogue : nullptr;
}

// Computes one worker's part of the result: `pixels` x `columns`.
template <typename T, typename Source>
HWY_NOINLINE void gather_rectangle(const GatherFrom<T, Source>& g,
                                   Range pixels,
                                   Range columns,
                                   char* scratch) {
  const TapBlocks blocks(g.taps(), g.depth);
  using Scratch = GatherScratch<T, Source>;
  constexpr bool kRounds = Scratch::kRounds, kWidens = Scratch::kWidens;
  const Scratch sizes(g.taps(), g.depth, g.pixels(), g.columns);
  float* const panel = reinterpret_cast<float*>(scratch);
  float* const sums = reinterpret_cast<float*>(scratch + sizes.panel);
  float* const widened = reinterpret_cast<float*>(scratch + sizes.panel + sizes.sums);
  char* const lists = scratch + sizes.panel + sizes.sums + sizes.widened;
  const GatherPixels<T> list(lists, sizes.block_pixels);
  const auto sources = reinterpret_cast<const float**>(lists + sizes.pixels_bytes);
  for (int64_t i = 0; i < sizes.block_pixels && kRounds; ++i) {
    list.sums[i] = sums + i * sizes.sum_stride;
  }
  float* const* rows;  // of sums
  if constexpr (kRounds) {
    rows = list.sums;
  } else {
    rows = list.result;
  }
  for (int64_t p = pixels.begin; p < pixels.end; p += sizes.block_pixels) {
    const Range some{p, std::min(pixels.end, p + sizes.block_pixels)};
    const size_t tiles_count = ceil_div(some.size(), kTileRows);
    list_pixels(g, some, list);
    for (int64_t i = 0; i < some.size() && blocks.count() == 0; ++i) {
      std::memset(list.result[i] + columns.begin, 0, columns.size() * sizeof(T));
    }
    for (int64_t first = columns.begin; first < columns.end; first += sizes.block_columns) {
      const Range kept{first, std::min(columns.end, first + sizes.block_columns)};
      for (int64_t block = 0; block < blocks.count(); ++block) {
        const Range taps = blocks.tap_range(block), depth = blocks.depth_range(block);
        list_sources(g, list, tiles_count, taps, depth.begin, sources);
        if constexpr (kWidens) {
          widen_sources<Source>(
              sources, tiles_count * taps.size() * kTileRows, depth.size(), widened);
        }
        for (int64_t n = kept.begin; n < kept.end; n += kPanel) {
          const int64_t some_columns = std::min<int64_t>(kept.end - n, kPanel);
          const bool last = block + 1 == blocks.count();
          pack_weights(g, taps, depth, n, some_columns, panel);
          GatherTiles tiles{};
          tiles.taps = taps.size();
          tiles.depth = depth.size();
          tiles.a = sources;
          tiles.b = panel;
          tiles.c = rows;
          tiles.column = kRounds ? n - kept.begin : n;
          tiles.accumulate = block > 0;
          tiles.prefetch = n == columns.begin && !kWidens;
          if constexpr (!kRounds) {
            tiles.epilogue = last ? epilogue_of_tiles(g.epilogue, some_columns) : nullptr;
            tiles.result = g.c;
          }
          gather_panel(tiles, some.size(), some_columns, /*padded=*/kRounds);
          if (last && tiles.epilogue == nullptr) {
            finish_pixels_with(g, rows, tiles.column, list.result, some.size(), n, some_columns);
          }
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_CONV2D_GATHER_INL_H

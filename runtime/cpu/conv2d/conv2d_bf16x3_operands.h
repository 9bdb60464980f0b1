#pragma once
// Images and weights, which store T, as operands of multiply_rectangle() (bf16x3_product.h):
// implicit matrix products, in which either the rows or the depth are pixels.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/matmul/bf16x3_operands.h"

namespace lockstep::cpu {

// The depth of a Gather. Each tap begins a new chunk.
struct TapChunks {
  template <typename T>
  explicit TapChunks(const Gather<T>& g) : depth(g.depth), in_tap(ceil_div(g.depth, kTileDepth)) {}
  int64_t tap(int64_t chunk) const { return chunk / in_tap; }
  int64_t channel(int64_t chunk) const { return chunk % in_tap * kTileDepth; }
  int64_t channels(int64_t chunk) const { return std::min(kTileDepth, depth - channel(chunk)); }
  int64_t depth, in_tap;
};
template <typename T>
int64_t gather_chunks(const Gather<T>& g) {
  return g.taps() * TapChunks(g).in_tap;
}

// A pixel of a Gather's result.
struct GatherPixel {
  template <typename T>
  GatherPixel(const Gather<T>& g, int64_t index)
      : image(index / (g.h.pixels * g.w.pixels)),
        i(index / g.w.pixels % g.h.pixels),
        j(index % g.w.pixels) {}
  template <typename T>
  void next(const Gather<T>& g) {
    if (++j < g.w.pixels) return;
    j = 0;
    if (++i < g.h.pixels) return;
    i = 0;
    ++image;
  }
  // Its offset in the result.
  template <typename T>
  int64_t result(const Gather<T>& g) const {
    return image * g.c_strides.image + (g.h.result_first + i * g.h.result_step) * g.c_strides.row +
           (g.w.result_first + j * g.w.result_step) * g.c_strides.pixel;
  }
  int64_t image, i, j;
};

// Operand A: its rows are pixels, read directly from the image.
template <typename T>
struct GatherA {
  using Number = T;

  bool as_rows() const { return true; }

  int64_t list(Range rows,
               Range chunks,
               const T** pointers,
               typename TileKernels<T>::Split* tiles,
               uint16_t* to) const {
    const TapChunks depth(g);
    int64_t h[kTileEdge], w[kTileEdge];
    const T* image[kTileEdge];
    GatherPixel pixel(g, rows.begin);
    for (int64_t i = 0; i < rows.size(); ++i, pixel.next(g)) {
      h[i] = g.h.source_first + pixel.i * g.h.source_step;
      w[i] = g.w.source_first + pixel.j * g.w.source_step;
      image[i] = g.a + pixel.image * g.a_strides.image;
    }
    int64_t count = 0;
    for (int64_t k = chunks.begin; k < chunks.end; ++count, pointers += kTileEdge) {
      const int64_t tap = depth.tap(k), end = std::min(chunks.end, (tap + 1) * depth.in_tap);
      const int64_t down = tap / g.w.taps * g.h.source_tap_step;
      const int64_t across = tap % g.w.taps * g.w.source_tap_step;
      for (int64_t i = 0; i < kTileEdge; ++i) {
        pointers[i] = nullptr;
        if (i >= rows.size()) continue;
        const int64_t y = h[i] + down, x = w[i] + across;
        if (y < 0 || y >= g.h.source_extent || x < 0 || x >= g.w.source_extent) continue;
        pointers[i] = image[i] + y * g.a_strides.row + x * g.a_strides.pixel;
      }
      const int64_t first = depth.channel(k);
      const int64_t last = depth.channel(end - 1) + depth.channels(end - 1);
      tiles[count] = {
          pointers, first, last - first, to + (k - chunks.begin) * kTileElems<T>, kTileElems<T>};
      k = end;
    }
    return count;
  }

  const Gather<T>& g;
};

// Operand B: the weights of a Gather.
template <typename T>
struct GatherB {
  bool as_rows() const { return !g.transposed; }

  const T* entry(int64_t tap) const {
    const int64_t i = g.h.tap_first + tap / g.w.taps * g.h.tap_step;
    const int64_t j = g.w.tap_first + tap % g.w.taps * g.w.tap_step;
    return g.weights + (i * g.kernel_w + j) * g.tap_stride;
  }

  void pack(const TileKernels<T>& kernels,
            Range columns,
            Range chunks,
            uint16_t* to,
            int64_t stride) const {
    const TapChunks depth(g);
    for (int64_t k = chunks.begin; k < chunks.end; ++k, to += stride) {
      const T* const tap = entry(depth.tap(k));
      const int64_t channel = depth.channel(k), channels = depth.channels(k);
      if (g.transposed) {
        const RowPointers<kTileEdge, T> rows(
            tap + columns.begin * g.weight_stride + channel, g.weight_stride, columns.size());
        kernels.pack_rows_as_columns(rows.rows, channels, to, stride);
      } else {
        const RowPointers<kTileDepth, T> rows(
            tap + channel * g.weight_stride + columns.begin, g.weight_stride, channels);
        kernels.pack_depth(rows.rows, columns.size(), to);
      }
    }
  }

  int64_t list(Range columns,
               Range chunks,
               const T** pointers,
               typename TileKernels<T>::Split* tiles,
               uint16_t* to) const {
    const TapChunks depth(g);
    int64_t count = 0;
    for (int64_t k = chunks.begin; k < chunks.end; ++k, pointers += kTileDepth) {
      const T* const first = entry(depth.tap(k)) + depth.channel(k) * g.weight_stride;
      for (int64_t i = 0; i < kTileDepth; ++i)
        pointers[i] = i < depth.channels(k) ? first + i * g.weight_stride : nullptr;
      for (int64_t j = columns.begin; j < columns.end; j += kTileEdge, to += kTileElems<T>)
        tiles[count++] = {pointers, j, std::min(kTileEdge, columns.end - j), to, 0};
    }
    return count;
  }

  RowFetcher fetcher(Range, Range, int64_t) const { return {}; }

  const Gather<T>& g;
};

// The result of a Gather of floats; its rows are pixels.
struct GatherC {
  explicit GatherC(const Gather<float>& g) : g(g) {
    const bool contiguous = g.h.result_step == 1 && g.w.result_step == 1 &&
                            g.c_strides.row == g.w.pixels * g.c_strides.pixel &&
                            g.c_strides.image == g.h.pixels * g.c_strides.row;
    pixel_stride = contiguous ? g.c_strides.pixel : 0;
  }
  float* row(int64_t index) const {
    return pixel_stride > 0 ? g.c + index * pixel_stride : g.c + GatherPixel(g, index).result(g);
  }
  int64_t stride() const { return pixel_stride; }
  void finish(Range rows, Range columns) const {
    if (g.epilogue.empty()) return;
    finish_block(g.epilogue, rows.begin, rows.end, columns.begin, columns.end, pixel_stride, g.c);
  }

  const Gather<float>& g;
  int64_t pixel_stride;  // elements between neighbouring pixels; 0 if it is not the same for all
};

// Operand B for the gradient of the weights: its columns are (tap, channel), its depth the output
// pixels. The number of channels is a multiple of 16.
template <typename T>
struct TapPixelsB {
  TapPixelsB(const graph::Conv2dShape& shape, const T* x)
      : s(shape), x(x), channels(shape.group_channels()) {}

  bool as_rows() const { return true; }

  // Lists where `tap` reads its pixels for the 32 output pixels of a chunk; null stands for
  // padding.
  void list_pixels(int64_t tap, int64_t chunk, const T** to) const {
    const int64_t width = s.out_width(), height = s.out_height();
    const int64_t down = tap / s.kernel_w * s.dilation_h - s.pad_h;
    const int64_t across = tap % s.kernel_w * s.dilation_w - s.pad_w;
    // The outputs of a row whose pixel lies within the image.
    const int64_t first = across >= 0 ? 0 : ceil_div(-across, s.stride_w);
    const int64_t last = across >= s.width ? 0 : ceil_div(s.width - across, s.stride_w);
    const int64_t begin = chunk * kTileDepth, end = std::min(s.out_pixels(), begin + kTileDepth);
    std::fill_n(to, kTileDepth, nullptr);
    for (int64_t p = begin; p < end;) {
      const int64_t row = p / width, j = p % width;
      const int64_t stop = std::min(width, j + end - p);
      const int64_t h = row % height * s.stride_h + down;
      if (h >= 0 && h < s.height) {
        const T* pixel = x + ((row / height * s.height + h) * s.width + across) * s.channels;
        const int64_t step = s.stride_w * s.channels;
        for (int64_t n = std::max(j, first); n < std::min(stop, last); ++n)
          to[p - begin + n - j] = pixel + n * step;
      }
      p += stop - j;
    }
  }

  void pack(const TileKernels<T>& kernels,
            Range columns,
            Range chunks,
            uint16_t* to,
            int64_t stride) const {
    const T* rows[kTileDepth];
    for (int64_t k = chunks.begin; k < chunks.end; ++k, to += stride) {
      list_pixels(columns.begin / channels, k, rows);
      for (const T*& row : rows) row = row == nullptr ? row : row + columns.begin % channels;
      kernels.pack_depth(rows, columns.size(), to);
    }
  }

  int64_t list(Range columns,
               Range chunks,
               const T** pointers,
               typename TileKernels<T>::Split* tiles,
               uint16_t* to) const {
    int64_t count = 0;
    for (int64_t k = chunks.begin; k < chunks.end; ++k) {
      int64_t listed = -1;
      for (int64_t j = columns.begin; j < columns.end; j += kTileEdge, to += kTileElems<T>) {
        const int64_t tap = j / channels;
        if (tap != listed) {
          if (listed >= 0) pointers += kTileDepth;
          listed = tap;
          list_pixels(tap, k, pointers);
        }
        tiles[count++] = {pointers, j % channels, kTileEdge, to, 0};
      }
      pointers += kTileDepth;
    }
    return count;
  }

  // Prefetches what all taps read for the output pixels of `chunks`.
  RowFetcher fetcher(Range, Range chunks, int64_t calls) const {
    const int64_t in_image = s.out_height() * s.out_width();
    const Range outputs{chunks.begin * kTileDepth,
                        std::min(s.out_pixels(), chunks.end * kTileDepth)};
    const auto row_of = [&](int64_t output) {
      return output / in_image * s.height + output % in_image / s.out_width() * s.stride_h;
    };
    const int64_t rows = s.batch * s.height;
    const int64_t begin = std::clamp<int64_t>(row_of(outputs.begin), 0, rows);
    const int64_t end = std::clamp<int64_t>(row_of(outputs.end - 1) + s.kernel_h, begin, rows);
    const int64_t row = s.width * s.channels;
    return {x + begin * row, row, end - begin, row, calls};
  }

  const graph::Conv2dShape& s;
  const T* x;
  int64_t channels;
};

// The gradient of the weights of a group: a row for each output channel, a column for each (tap,
// channel).
inline int64_t weight_columns(const graph::Conv2dShape& s) {
  return s.kernel_h * s.kernel_w * s.group_channels();
}
template <typename T>
int64_t weight_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  return split_workspace_bytes<T>(
      s.group_outputs(), weight_columns(s), ceil_div(s.out_pixels(), kTileDepth), threads);
}
template <typename T>
void multiply_for_weight(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t columns = weight_columns(s), pixels = s.out_pixels();
  for (int64_t group = 0; group < s.groups; ++group) {
    float* const d_weight = op.d_weight + group * s.group_outputs() * columns;
    if (pixels == 0) {
      if (!op.accumulate_weight)
        std::memset(d_weight, 0, static_cast<size_t>(s.group_outputs() * columns) * sizeof(float));
      continue;
    }
    multiply_all(
        DenseA<T>{{op.d_y + group * s.group_outputs(), s.outputs, /*transposed=*/true}, pixels},
        TapPixelsB<T>(s, op.x + group * s.group_channels()),
        DenseC{d_weight, columns},
        s.group_outputs(),
        columns,
        ceil_div(pixels, kTileDepth),
        op.accumulate_weight,
        op.workspace);
  }
}

}  // namespace lockstep::cpu

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/stored.h"

// The gradient of the weights by Winograd's transforms. Each worker has a rectangle of outputs x
// channels and walks over all tiles, block by block. It transforms the gradients of its outputs,
// then, panel by panel, the pixels of its channels, and adds to the products of every entry. At the
// end it transforms the products.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d_winograd_weight.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_winograd-inl.h"
#include "runtime/cpu/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Transforms the gradients of some tiles and outputs: to[entry][tile][output].
template <typename T>
HWY_NOINLINE void transform_block_gradients(const Gather<T>& g,
                                            const T* d_y,
                                            PixelStrides strides,
                                            const WinogradWeightScratch& scratch,
                                            Range range,
                                            Range outputs,
                                            float* to) {
  const WinogradTiles tiles(g);
  for (int64_t index = range.begin; index < range.end; ++index, to += scratch.gradient_stride) {
    const TilePosition position(tiles, index);
    const T* const from = d_y + position.image * strides.image + position.i * strides.row +
                          position.j * strides.pixel + outputs.begin;
    const bool below = position.i + 1 < g.h.pixels, right = position.j + 1 < g.w.pixels;
    const Vec zero = hn::Zero(F32());
    for_each_vector(outputs.size(), [&](size_t n, auto access) HWY_ATTR {
      Vec gradients[4], entries[kEntries];
      gradients[0] = access.load(from + n);
      gradients[1] = right ? access.load(from + strides.pixel + n) : zero;
      gradients[2] = below ? access.load(from + strides.row + n) : zero;
      gradients[3] = below && right ? access.load(from + strides.row + strides.pixel + n) : zero;
      transform_gradient_tile(gradients, entries);
      HWY_UNROLL(16)
      for (size_t e = 0; e < kEntries; ++e) {
        hn::StoreU(entries[e], F32(), to + e * scratch.gradients_entry + n);
      }
    });
  }
}

// product(outputs, width) += gradients(tiles, outputs)^T pixels(tiles, width).
HWY_INLINE void add_product(const float* gradients,
                            size_t gradient_stride,
                            size_t outputs,
                            const float* pixels,
                            size_t count,
                            size_t width,
                            bool accumulate,
                            float* product) {
  Prefetcher none;
  Tiles tiles{};
  tiles.depth = count;
  tiles.a_stride = gradient_stride;
  tiles.b = pixels;
  tiles.b_stride = width;
  tiles.c_stride = width;
  tiles.accumulate = accumulate;
  tiles.next_panel = tiles.next_other = &none;
  for (size_t i = 0; i < outputs;) {
    const size_t rows = std::min(outputs - i, kTileRows);
    tiles.tiles = (outputs - i) / rows;
    tiles.a = gradients + i;
    tiles.a_step = rows;
    tiles.c = product + i * width;
    tile_kernel(true, width / kVecLanes, rows)(tiles);
    i += tiles.tiles * rows;
  }
}

// Transforms the products of some outputs and of the panel that begins at `column`.
template <typename T>
HWY_NOINLINE void finish_panel(const graph::Conv2dBackward<T>& op,
                               const float* products,  // [entry][output][channel]
                               size_t entry_stride,
                               Range outputs,
                               int64_t column,
                               int64_t columns) {
  const int64_t channels = op.shape.channels;
  const bool accumulate = op.accumulate_weight;
  const size_t width = round_up(columns, kVecLanes);
  for (int64_t o = outputs.begin; o < outputs.end; ++o) {
    const float* const from = products + (o - outputs.begin) * width;
    float* const to = op.d_weight + o * 9 * channels + column;
    for_each_vector(columns, [&](size_t c, auto access) HWY_ATTR {
      Vec entries[kEntries], weights[9];
      HWY_UNROLL(16)
      for (size_t e = 0; e < kEntries; ++e) {
        entries[e] = hn::LoadU(F32(), from + e * entry_stride + c);
      }
      transform_product_tile(entries, weights);
      HWY_UNROLL(9)
      for (size_t t = 0; t < 9; ++t) {
        float* const at = to + t * channels + c;
        access.store(accumulate ? hn::Add(access.load(at), weights[t]) : weights[t], at);
      }
    });
  }
}

// The products of a block of tiles: some outputs x a panel of channels.
struct ProductPanel {
  float* data;  // [entry][output][channel]
  size_t entry_stride;
  size_t width;
};

HWY_INLINE void add_products(const WinogradWeightScratch& sizes,
                             const float* gradients,
                             const float* pixels,
                             size_t tiles,
                             size_t outputs,
                             bool accumulate,
                             ProductPanel to) {
  for (int64_t e = 0; e < kEntries; ++e) {
    add_product(gradients + e * sizes.gradients_entry,
                sizes.gradient_stride,
                outputs,
                pixels + e * sizes.pixels_entry,
                tiles,
                to.width,
                accumulate,
                to.data + e * to.entry_stride);
  }
}

// One worker's part of d_w.
struct Rectangle {
  Range outputs, channels;
};

// For a single block of tiles: transforms the products while they are in the cache.
template <typename T>
HWY_NOINLINE void backward_weight_single_block(const graph::Conv2dBackward<T>& op,
                                               const WinogradWeightScratch& sizes,
                                               Rectangle part,
                                               int64_t c,
                                               size_t tiles,
                                               const float* gradients,
                                               const float* pixels,
                                               float* products) {
  constexpr int64_t kStep = WinogradWeightScratch::kSingleBlockOutputs;
  const int64_t columns = std::min<int64_t>(part.channels.end - c, kPanel);
  const size_t width = round_up(columns, kVecLanes);
  const ProductPanel panel{products, kStep * width + kEntryGap, width};
  for (int64_t o = part.outputs.begin; o < part.outputs.end; o += kStep) {
    const Range some{o, std::min(part.outputs.end, o + kStep)};
    add_products(
        sizes, gradients + o - part.outputs.begin, pixels, tiles, some.size(), false, panel);
    finish_panel(op, products, panel.entry_stride, some, c, columns);
  }
}

template <typename T>
HWY_NOINLINE void backward_weight_rectangle(const graph::Conv2dBackward<T>& op,
                                            const Gather<T>& g,
                                            const WinogradWeightScratch& sizes,
                                            Rectangle part,
                                            float* scratch) {
  const graph::Conv2dShape& s = op.shape;
  float* const products = reinterpret_cast<float*>(op.workspace);
  const auto [outputs, channels] = part;
  float* const gradients = scratch;
  float* const pixels = gradients + kEntries * sizes.gradients_entry;
  float* const block_products = pixels + kEntries * sizes.pixels_entry;
  const PixelStrides strides = pixel_strides(s.out_height(), s.out_width(), s.outputs);
  const int64_t count = WinogradTiles(g).count;
  // The products of this worker's outputs and of the panel that begins at channel c.
  const auto panel_of = [&](int64_t c, int64_t width) {
    const int64_t entry = s.outputs * width + kEntryGap;
    return ProductPanel{products + c / kPanel * kEntries * (s.outputs * kPanel + kEntryGap) +
                            part.outputs.begin * width,
                        static_cast<size_t>(entry),
                        static_cast<size_t>(width)};
  };
  // At least one block, which sets the products to zero even if there are no outputs at all.
  for (int64_t begin = 0; begin == 0 || begin < count; begin += sizes.block) {
    const Range range{begin, std::min(count, begin + sizes.block)};
    transform_block_gradients(g, op.d_y, strides, sizes, range, outputs, gradients);
    for (int64_t c = channels.begin; c < channels.end; c += kPanel) {
      const int64_t columns = std::min<int64_t>(channels.end - c, kPanel);
      const int64_t width = round_up(columns, kVecLanes);
      transform_block_pixels(g, range, Range{c, c + columns}, pixels, sizes.pixels_entry, width);
      if (sizes.single_block) {
        backward_weight_single_block(
            op, sizes, part, c, range.size(), gradients, pixels, block_products);
        continue;
      }
      add_products(
          sizes, gradients, pixels, range.size(), outputs.size(), begin > 0, panel_of(c, width));
    }
  }
  for (int64_t c = channels.begin; c < channels.end && !sizes.single_block; c += kPanel) {
    const int64_t columns = std::min<int64_t>(channels.end - c, kPanel);
    const ProductPanel panel = panel_of(c, round_up(columns, kVecLanes));
    finish_panel(op, panel.data, panel.entry_stride, outputs, c, columns);
  }
}

template <typename T>
void backward_weight_all(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  const WinogradWeightScratch scratch(s, compute_threads());
  Gather<T> g{};
  g.images = s.batch;
  g.h = forward_axis(s.height, s.kernel_h, s.stride_h, s.pad_h, s.dilation_h);
  g.w = forward_axis(s.width, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w);
  g.a = op.x;
  g.a_strides = pixel_strides(s.height, s.width, s.channels);
  const WorkerGrid grid = scratch.grid;
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    backward_weight_rectangle(
        op,
        g,
        scratch,
        {share(s.outputs, kRowUnit, worker / grid.columns, grid.rows),
         share(s.channels, kMaxPanel, worker % grid.columns, grid.columns)},
        reinterpret_cast<float*>(op.workspace) + scratch.products + worker * scratch.worker);
  });
}

void winograd_weight_kernel(AnyStored<graph::Conv2dBackward> stored) {
  stored.with([](const auto& op) HWY_ATTR { backward_weight_all(op); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(winograd_weight_kernel);

template <typename T>
void winograd_backward_weight(const graph::Conv2dBackward<T>& op) {
  HWY_DYNAMIC_DISPATCH(winograd_weight_kernel)(op);
}
template void winograd_backward_weight(const graph::Conv2dBackward<float>&);
template void winograd_backward_weight(const graph::Conv2dBackward<BFloat16>&);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

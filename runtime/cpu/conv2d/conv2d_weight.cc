#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_parts.h"
#include "runtime/cpu/conv2d/conv2d_strips.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

// The gradient of the weights. For each tap, d_w = d_y^T x over the pairs of pixels that the tap
// connects. Both operands are read in place, through a list of these pairs. Each tile of d_w is
// multiplied with a block of pixels, which stays in the cache for the next tile.
//
// A 1x1 kernel that skips pixels (stride above 1): the pixels that it reads are copied, and the
// rest is a linear layer. By strips (conv2d_strips.h), the rows of the product are kernel columns x
// channels, and its columns are the outputs: d_w is computed transposed and copied at the end.

#ifndef LOCKSTEP_RUNTIME_CPU_CONV2D_WEIGHT_BLOCKS
#define LOCKSTEP_RUNTIME_CPU_CONV2D_WEIGHT_BLOCKS
namespace lockstep::cpu {

// Pixels of a block: as many as have outputs that fill at most half of a second-level cache.
constexpr int64_t weight_block_pixels(int64_t outputs) {
  return std::clamp<int64_t>(kBlockFloats * 2 / 3 / outputs, 256, 2048);
}

// The tiles of a product for every tap (or row of the kernel), numbered so that neighbours share
// the tap and the columns. They are distributed over the workers.
struct WeightTiles {
  struct Tile {
    int64_t tap;
    Range rows, columns;
  };

  int64_t taps, rows, columns;

  int64_t down() const { return ceil_div(rows, kRowUnit); }
  int64_t across() const { return ceil_div(columns, kMaxPanel); }
  int64_t count() const { return taps * down() * across(); }
  Tile operator[](int64_t index) const {
    const int64_t i = index % down() * kRowUnit, j = index / down() % across() * kMaxPanel;
    return {index / down() / across(),
            {i, std::min(rows, i + kRowUnit)},
            {j, std::min(columns, j + kMaxPanel)}};
  }
};

constexpr int64_t kPairBytes = 16;

// A 1x1 kernel that skips pixels. Without the skipped pixels, it is a linear layer.
inline bool skips_pixels(const graph::Conv2dShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.pad_h == 0 && s.pad_w == 0 && s.groups == 1;
}
// Number of floats in the pixels that such a kernel reads.
inline int64_t read_floats(const graph::Conv2dShape& s) {
  return round_up(s.out_pixels() * s.channels, 16);
}

// Scratch memory for strips: the product, and a strip and a list of pairs for each worker.
struct WeightStripsScratch {
  explicit WeightStripsScratch(const Strips& strips)
      : product_floats(round_up(strips.shape.kernel_h * strips.depth() * strips.shape.outputs, 16)),
        pairs_bytes(round_up(strips.rows * strips.shape.out_width() * kPairBytes, 64)),
        worker_bytes(strips.floats() * static_cast<int64_t>(sizeof(float)) + pairs_bytes) {}

  int64_t bytes(int64_t workers) const {
    return product_floats * static_cast<int64_t>(sizeof(float)) + workers * worker_bytes;
  }

  int64_t product_floats, pairs_bytes, worker_bytes;
};

}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d_weight.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

static_assert(sizeof(PixelPair) == kPairBytes);

// c (+)= the product of the pairs for one tile, which may consist of several register tiles.
HWY_INLINE void multiply_unit(const PixelPair* pairs,
                              size_t count,
                              const WeightTiles::Tile& unit,
                              float* c,
                              size_t c_stride,
                              bool accumulate) {
  for (int64_t j = unit.columns.begin; j < unit.columns.end; j += kPanel) {
    for (int64_t i = unit.rows.begin; i < unit.rows.end; i += kTileRows) {
      PairTile tile{};
      tile.pairs = count;
      tile.pair = pairs;
      tile.row = i;
      tile.column = j;
      tile.columns = std::min<int64_t>(unit.columns.end - j, kPanel);
      tile.c = c + i * c_stride + j;
      tile.c_stride = c_stride;
      tile.accumulate = accumulate;
      pair_kernel(std::min<int64_t>(unit.rows.end - i, kTileRows), tile.columns)(tile);
    }
  }
}

// Lists the pairs (output, pixel that the tap reads for it) for outputs `range` of the batch,
// except those whose tap is padding. Returns their number.
HWY_INLINE size_t list_pairs(const graph::Conv2dBackward<float>& op,
                             int64_t tap,
                             Range range,
                             PixelPair* to) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t out_height = s.out_height(), out_width = s.out_width();
  const int64_t h0 = tap / s.kernel_w * s.dilation_h - s.pad_h;
  const int64_t w0 = tap % s.kernel_w * s.dilation_w - s.pad_w;
  // The outputs of a row whose pixel lies within the image.
  const int64_t first = w0 >= 0 ? 0 : ceil_div(-w0, s.stride_w);
  const int64_t last = w0 >= s.width ? 0 : ceil_div(s.width - w0, s.stride_w);
  PixelPair* pair = to;
  for (int64_t p = range.begin; p < range.end;) {
    const int64_t row = p / out_width, begin = p - row * out_width;
    const int64_t end = std::min(out_width, begin + range.end - p);
    const int64_t h = row % out_height * s.stride_h + h0;
    if (h >= 0 && h < s.height) {
      const int64_t from = std::max(begin, first), until = std::min(end, last);
      const float* a = op.d_y + (row * out_width + from) * s.outputs;
      const float* b =
          op.x +
          ((row / out_height * s.height + h) * s.width + from * s.stride_w + w0) * s.channels;
      for (int64_t j = from; j < until; ++j) {
        *pair++ = {a, b};
        a += s.outputs;
        b += s.stride_w * s.channels;
      }
    }
    p += end - begin;
  }
  return pair - to;
}

// Computes one worker's tiles of group 0.
HWY_NOINLINE void backward_weight_tiles(const graph::Conv2dBackward<float>& op,
                                        Range tiles,
                                        PixelPair* pairs) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t taps = s.kernel_h * s.kernel_w, channels = s.group_channels();
  const WeightTiles all{taps, s.group_outputs(), channels};
  const int64_t step = weight_block_pixels(s.group_outputs());
  // At least one block, which sets d_w to zero even if there are no outputs at all.
  for (int64_t p = 0; p == 0 || p < s.out_pixels(); p += step) {
    const Range block{p, std::min(s.out_pixels(), p + step)};
    int64_t listed = -1;
    size_t count = 0;
    for (int64_t index = tiles.begin; index < tiles.end; ++index) {
      const WeightTiles::Tile unit = all[index];
      if (unit.tap != listed) {
        listed = unit.tap;
        count = list_pairs(op, unit.tap, block, pairs);
      }
      multiply_unit(pairs,
                    count,
                    unit,
                    op.d_weight + unit.tap * channels,
                    taps * channels,
                    op.accumulate_weight || p > 0);
    }
  }
}

void backward_weight(const graph::Conv2dBackward<float>& op) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t workers = threads_worth(compute_threads(), s.multiply_adds() / s.groups);
  const WeightTiles all{s.kernel_h * s.kernel_w, s.group_outputs(), s.group_channels()};
  const int64_t list_bytes = weight_block_pixels(s.group_outputs()) * kPairBytes;
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    backward_weight_tiles(op,
                          share(all.count(), 1, worker, workers),
                          reinterpret_cast<PixelPair*>(op.workspace + worker * list_bytes));
  });
}

// Copies a tile between d_w, (outputs, rows of the kernel, depth), and the product, (rows of the
// kernel, depth, outputs).
template <typename Copy>
HWY_INLINE void copy_tile(const Strips& strips,
                          const WeightTiles::Tile& tile,
                          float* d_w,
                          float* product,
                          const Copy& copy) {
  const int64_t depth = strips.depth(), outputs = strips.shape.outputs;
  for (int64_t i = tile.rows.begin; i < tile.rows.end; ++i) {
    for (int64_t j = tile.columns.begin; j < tile.columns.end; ++j) {
      copy(d_w[(j * strips.shape.kernel_h + tile.tap) * depth + i],
           product[(tile.tap * depth + i) * outputs + j]);
    }
  }
}

// Computes one worker's tiles of the transposed product.
HWY_NOINLINE void backward_weight_strips_tiles(const graph::Conv2dBackward<float>& op,
                                               const Strips& strips,
                                               Range tiles,
                                               float* product,
                                               float* strip,
                                               PixelPair* pairs) {
  const graph::Conv2dShape& s = strips.shape;
  const int64_t depth = strips.depth(), out_width = s.out_width();
  const WeightTiles all{s.kernel_h, depth, s.outputs};
  for (int64_t index = tiles.begin; index < tiles.end; ++index) {
    copy_tile(strips, all[index], op.d_weight, product, [&](float& from, float& to) {
      to = op.accumulate_weight ? from : 0.0f;
    });
  }
  for (int64_t n = 0; n < strips.count(); ++n) {
    strips.copy(op.x, n, strip);
    const Range rows = strips.result_rows(n);
    const float* const first =
        op.d_y + (strips.image(n) * s.out_height() + rows.begin) * out_width * s.outputs;
    const int64_t count = rows.size() * out_width;
    int64_t listed = -1;
    for (int64_t index = tiles.begin; index < tiles.end; ++index) {
      const WeightTiles::Tile unit = all[index];
      if (unit.tap != listed) {
        listed = unit.tap;
        for (int64_t p = 0; p < count; ++p) {
          pairs[p] = {strip +
                          (p / out_width * s.stride_h + unit.tap * s.dilation_h) * strips.stride() +
                          p % out_width * s.stride_w * s.channels,
                      first + p * s.outputs};
        }
      }
      multiply_unit(pairs, count, unit, product + unit.tap * depth * s.outputs, s.outputs, true);
    }
  }
  for (int64_t index = tiles.begin; index < tiles.end; ++index) {
    copy_tile(strips, all[index], op.d_weight, product, [](float& to, float& from) { to = from; });
  }
}

void backward_weight_strips(const graph::Conv2dBackward<float>& op) {
  const int64_t workers = threads_worth(compute_threads(), op.shape.multiply_adds());
  const Strips strips(op.shape);
  const WeightTiles all{op.shape.kernel_h, strips.depth(), op.shape.outputs};
  const WeightStripsScratch scratch(strips);
  float* const product = reinterpret_cast<float*>(op.workspace);
  std::byte* const rest = op.workspace + scratch.product_floats * sizeof(float);
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    std::byte* const mine = rest + worker * scratch.worker_bytes;
    backward_weight_strips_tiles(op,
                                 strips,
                                 share(all.count(), 1, worker, workers),
                                 product,
                                 reinterpret_cast<float*>(mine + scratch.pairs_bytes),
                                 reinterpret_cast<PixelPair*>(mine));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(backward_weight);
HWY_EXPORT(backward_weight_strips);

namespace {

void backward_weight_skipping(const graph::Conv2dBackward<float>& op) {
  const graph::Conv2dShape& s = op.shape;
  float* const read = reinterpret_cast<float*>(op.workspace);
  const int64_t across = s.out_width(), rows = s.batch * s.out_height();
  parallel_for(rows, grain_rows(across * s.channels), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / s.out_height(), h = row % s.out_height() * s.stride_h;
      const float* from = op.x + (image * s.height + h) * s.width * s.channels;
      float* to = read + row * across * s.channels;
      for (int64_t j = 0; j < across; ++j) {
        std::memcpy(to, from, static_cast<size_t>(s.channels) * sizeof(float));
        from += s.stride_w * s.channels;
        to += s.channels;
      }
    }
  });
  graph::LinearBackward<float> linear = linear_backward(op);
  linear.x = read;
  linear.workspace = reinterpret_cast<std::byte*>(read + read_floats(s));
  linear_backward_weight(linear);
}

}  // namespace

int64_t conv2d_weight_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  if (is_depthwise(s)) return depthwise_workspace_bytes(s);
  if (uses_strips(s)) return WeightStripsScratch(Strips(s)).bytes(threads);
  if (uses_winograd(s)) return WinogradWeightScratch(s, threads).bytes();
  if (skips_pixels(s))
    return read_floats(s) * static_cast<int64_t>(sizeof(float)) +
           linear_workspace_bytes(linear_shape(s), threads);
  return threads * weight_block_pixels(s.group_outputs()) * kPairBytes;
}

void conv2d_backward_weight(const graph::Conv2dBackward<float>& op) {
  const graph::Conv2dShape& s = op.shape;
  if (s.is_linear()) return linear_backward_weight(linear_backward(op));
  if (is_depthwise(s)) return depthwise_backward_weight(op);
  if (uses_winograd(s)) return winograd_backward_weight(op);
  if (skips_pixels(s)) return backward_weight_skipping(op);
  if (uses_strips(s)) return HWY_DYNAMIC_DISPATCH(backward_weight_strips)(op);
  graph::Conv2dBackward<float> group = op;
  for (int64_t i = 0; i < s.groups; ++i) {
    HWY_DYNAMIC_DISPATCH(backward_weight)(group);
    group.d_y += s.group_outputs();
    group.x += s.group_channels();
    group.d_weight += s.group_outputs() * s.patch();
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE

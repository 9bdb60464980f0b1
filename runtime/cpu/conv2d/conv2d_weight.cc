#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_gather.h"
#include "runtime/cpu/conv2d/conv2d_parts.h"
#include "runtime/cpu/conv2d/conv2d_strips.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/stored.h"

// The gradient of the weights. For each tap, d_w = d_y^T x over the pairs of pixels that the tap
// connects. Both operands are read in place, through a list of these pairs. Each tile of d_w is
// multiplied with a block of pixels, which stays in the cache for the next tile. If they are
// bfloat16, the pairs are of copies in floats: of the block's outputs, and of those channels of the
// pixels that a tile has.
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
// Bytes of the pixels that such a kernel reads.
template <typename T>
int64_t read_bytes(const graph::Conv2dShape& s) {
  return round_up(s.out_pixels() * s.channels * static_cast<int64_t>(sizeof(T)), 64);
}

// Scratch memory of one worker: a list of pairs and, for bfloat16, copies of what they multiply.
template <typename T>
struct WeightScratch {
  static constexpr bool kWidens = !std::is_same_v<T, float>;

  explicit WeightScratch(const graph::Conv2dShape& s)
      : pixels(round_up(weight_block_pixels(s.group_outputs()), kWidens ? 4 : 1)),
        channels_floats(kWidens ? pixels * kMaxPanel : 0),
        outputs_floats(kWidens ? round_up(pixels * s.group_outputs(), 16) : 0) {}

  int64_t bytes() const {
    return pixels * kPairBytes +
           (channels_floats + outputs_floats) * static_cast<int64_t>(sizeof(float));
  }

  int64_t pixels;  // of a block
  int64_t channels_floats, outputs_floats;
};

// Scratch memory for strips: the product, and a strip and a list of pairs for each worker; for
// bfloat16 also a copy of the strip's outputs.
template <typename T>
struct WeightStripsScratch {
  explicit WeightStripsScratch(const Strips& strips)
      : product_floats(round_up(strips.shape.kernel_h * strips.depth() * strips.shape.outputs, 16)),
        pairs_bytes(round_up(strips.rows * strips.shape.out_width() * kPairBytes, 64)),
        outputs_floats(
            std::is_same_v<T, float>
                ? 0
                : round_up(strips.rows * strips.shape.out_width() * strips.shape.outputs, 16)),
        worker_bytes((strips.floats() + outputs_floats) * static_cast<int64_t>(sizeof(float)) +
                     pairs_bytes) {}

  int64_t bytes(int64_t workers) const {
    return product_floats * static_cast<int64_t>(sizeof(float)) + workers * worker_bytes;
  }

  int64_t product_floats, pairs_bytes, outputs_floats, worker_bytes;
};

}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d_weight.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_pack-inl.h"
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
// except those whose tap is padding. Returns their number. The outputs' gradients are at d_y, d_y +
// stride, ...; those pixels that are not floats are listed as addresses.
template <typename T>
HWY_INLINE size_t list_pairs(const graph::Conv2dBackward<T>& op,
                             int64_t tap,
                             Range range,
                             const float* d_y,
                             int64_t stride,
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
      const float* a = d_y + (row * out_width + from - range.begin) * stride;
      const T* b = op.x + ((row / out_height * s.height + h) * s.width + from * s.stride_w + w0) *
                              s.channels;
      for (int64_t j = from; j < until; ++j) {
        *pair++ = {a, reinterpret_cast<const float*>(b)};
        a += stride;
        b += s.stride_w * s.channels;
      }
    }
    p += end - begin;
  }
  return pair - to;
}

// Computes one worker's tiles of group 0.
template <typename T>
HWY_NOINLINE void backward_weight_tiles(const graph::Conv2dBackward<T>& op,
                                        Range tiles,
                                        std::byte* scratch) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t taps = s.kernel_h * s.kernel_w, channels = s.group_channels();
  const int64_t outputs = s.group_outputs();
  const WeightTiles all{taps, outputs, channels};
  using Scratch = WeightScratch<T>;
  const Scratch sizes(s);
  auto* const pairs = reinterpret_cast<PixelPair*>(scratch);
  auto* const copied_channels = reinterpret_cast<float*>(pairs + sizes.pixels);
  float* const copied_outputs = copied_channels + sizes.channels_floats;
  // At least one block, which sets d_w to zero even if there are no outputs at all.
  for (int64_t p = 0; p == 0 || p < s.out_pixels(); p += sizes.pixels) {
    const Range block{p, std::min(s.out_pixels(), p + sizes.pixels)};
    if constexpr (Scratch::kWidens) {
      for (int64_t i = 0; i < block.size(); ++i) {
        copy_as_floats(op.d_y + (p + i) * s.outputs, outputs, copied_outputs + i * outputs);
      }
    }
    int64_t listed_tap = -1, listed_column = -1;
    size_t count = 0;
    for (int64_t index = tiles.begin; index < tiles.end; ++index) {
      WeightTiles::Tile unit = all[index];
      float* const c = op.d_weight + unit.tap * channels;
      const bool accumulate = op.accumulate_weight || p > 0;
      if constexpr (Scratch::kWidens) {
        const Range columns = unit.columns;
        if (unit.tap != listed_tap || columns.begin != listed_column) {
          count = list_pairs(op, unit.tap, block, copied_outputs, outputs, pairs);
          for (size_t i = 0; i < count; ++i) {
            float* const copy = copied_channels + i * kMaxPanel;
            copy_as_floats(
                reinterpret_cast<const T*>(pairs[i].b) + columns.begin, columns.size(), copy);
            pairs[i].b = copy;
          }
        }
        listed_column = columns.begin;
        unit.columns = {0, columns.size()};
        multiply_unit(pairs, count, unit, c + columns.begin, taps * channels, accumulate);
      } else {
        if (unit.tap != listed_tap) {
          count = list_pairs(op, unit.tap, block, op.d_y + p * s.outputs, s.outputs, pairs);
        }
        multiply_unit(pairs, count, unit, c, taps * channels, accumulate);
      }
      listed_tap = unit.tap;
    }
  }
}

template <typename T>
void backward_weight(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  const int64_t workers = threads_worth(compute_threads(), s.multiply_adds() / s.groups);
  const WeightTiles all{s.kernel_h * s.kernel_w, s.group_outputs(), s.group_channels()};
  const int64_t scratch = WeightScratch<T>(s).bytes();
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    backward_weight_tiles(
        op, share(all.count(), 1, worker, workers), op.workspace + worker * scratch);
  });
}

void backward_weight_kernel(AnyStored<graph::Conv2dBackward> stored) {
  stored.with([](const auto& op) HWY_ATTR { backward_weight(op); });
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
template <typename T>
HWY_NOINLINE void backward_weight_strips_tiles(const graph::Conv2dBackward<T>& op,
                                               const Strips& strips,
                                               Range tiles,
                                               float* product,
                                               float* strip,
                                               float* copied_outputs,
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
    strips.copy(op.x, n, strip, [](const T* from, int64_t numbers, float* to) HWY_ATTR {
      copy_as_floats(from, numbers, to);
    });
    const Range rows = strips.result_rows(n);
    const T* const d_y =
        op.d_y + (strips.image(n) * s.out_height() + rows.begin) * out_width * s.outputs;
    const int64_t count = rows.size() * out_width;
    const float* first;
    if constexpr (std::is_same_v<T, float>) {
      first = d_y;
    } else {
      copy_as_floats(d_y, count * s.outputs, copied_outputs);
      first = copied_outputs;
    }
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

template <typename T>
void backward_weight_strips(const graph::Conv2dBackward<T>& op) {
  const int64_t workers = threads_worth(compute_threads(), op.shape.multiply_adds());
  const Strips strips(op.shape);
  const WeightTiles all{op.shape.kernel_h, strips.depth(), op.shape.outputs};
  const WeightStripsScratch<T> scratch(strips);
  float* const product = reinterpret_cast<float*>(op.workspace);
  std::byte* const rest = op.workspace + scratch.product_floats * sizeof(float);
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    std::byte* const mine = rest + worker * scratch.worker_bytes;
    auto* const copied = reinterpret_cast<float*>(mine + scratch.pairs_bytes);
    backward_weight_strips_tiles(op,
                                 strips,
                                 share(all.count(), 1, worker, workers),
                                 product,
                                 copied + scratch.outputs_floats,
                                 copied,
                                 reinterpret_cast<PixelPair*>(mine));
  });
}

void backward_weight_strips_kernel(AnyStored<graph::Conv2dBackward> stored) {
  stored.with([](const auto& op) HWY_ATTR { backward_weight_strips(op); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(backward_weight_kernel);
HWY_EXPORT(backward_weight_strips_kernel);

namespace {

template <typename T>
void backward_weight_skipping(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  T* const read = reinterpret_cast<T*>(op.workspace);
  const int64_t across = s.out_width(), rows = s.batch * s.out_height();
  parallel_for(rows, grain_rows(across * s.channels), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / s.out_height(), h = row % s.out_height() * s.stride_h;
      const T* from = op.x + (image * s.height + h) * s.width * s.channels;
      T* to = read + row * across * s.channels;
      for (int64_t j = 0; j < across; ++j) {
        std::memcpy(to, from, static_cast<size_t>(s.channels) * sizeof(T));
        from += s.stride_w * s.channels;
        to += s.channels;
      }
    }
  });
  graph::LinearBackward<T> linear = linear_backward(op);
  linear.x = read;
  gemm(product_for_weight(linear), op.workspace + read_bytes<T>(s));
}

}  // namespace

template <typename T>
int64_t conv2d_weight_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  if (is_depthwise(s)) return depthwise_workspace_bytes(s);
  if (uses_strips(s)) return WeightStripsScratch<T>(Strips(s)).bytes(threads);
  if (uses_winograd(s)) return WinogradWeightScratch(s, threads).bytes();
  if (skips_pixels(s))
    return read_bytes<T>(s) + linear_workspace_bytes<T>(linear_shape(s), threads);
  return threads * WeightScratch<T>(s).bytes();
}
template int64_t conv2d_weight_workspace_bytes<float>(const graph::Conv2dShape&, int);
template int64_t conv2d_weight_workspace_bytes<BFloat16>(const graph::Conv2dShape&, int);

template <typename T>
void conv2d_backward_weight(const graph::Conv2dBackward<T>& op) {
  const graph::Conv2dShape& s = op.shape;
  if (s.is_linear()) return gemm(product_for_weight(linear_backward(op)), op.workspace);
  if (is_depthwise(s)) return depthwise_backward_weight(op);
  if (uses_winograd(s)) return winograd_backward_weight(op);
  if (skips_pixels(s)) return backward_weight_skipping(op);
  if (uses_strips(s)) return HWY_DYNAMIC_DISPATCH(backward_weight_strips_kernel)(op);
  graph::Conv2dBackward<T> group = op;
  for (int64_t i = 0; i < s.groups; ++i) {
    HWY_DYNAMIC_DISPATCH(backward_weight_kernel)(group);
    group.d_y += s.group_outputs();
    group.x += s.group_channels();
    group.d_weight += s.group_outputs() * s.patch();
  }
}
template void conv2d_backward_weight(const graph::Conv2dBackward<float>&);
template void conv2d_backward_weight(const graph::Conv2dBackward<BFloat16>&);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
